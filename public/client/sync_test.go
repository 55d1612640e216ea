package client_test

import (
	"bytes"
	"testing"

	"millrace/public/client"
	"millrace/public/internal/testframe"
)

// TestSync: #sync events come on both wires, as the frame has them, if they are asked for; on v2's
// also if no kind is.
func TestSync(t *testing.T) {
	t.Parallel()
	l, s := served(t, identity(didN(1)), testframe.Sync(didN(2)), account(didN(3)))
	all := l.all()
	if !bytes.Contains([]byte(all[1].json), []byte(`"kind":"sync"`)) {
		t.Fatal(all[1].json)
	}
	for _, tc := range []struct {
		path  string
		kinds []client.Kind
		want  []int
	}{
		{"", nil, []int{0, 2}},
		{"", []client.Kind{client.KindSync}, []int{1}},
		{"", client.AllKinds(), []int{0, 1, 2}},
		{client.V2Path, nil, []int{0, 1, 2}},
		{client.V2Path, []client.Kind{client.KindSync}, []int{1}},
		{client.V2Path, []client.Kind{client.KindAccount, client.KindSync}, []int{1, 2}},
	} {
		var want []truth
		for _, i := range tc.want {
			want = append(want, all[i])
		}
		c := newClient(t, client.Config{URL: s.URL + tc.path, Cursor: "0", Kinds: tc.kinds})
		got := read(t, c, len(want))
		if tc.path == "" {
			check(t, got, want)
		} else {
			checkV2(t, got, want)
		}
		for i, e := range got {
			if is := tc.want[i] == 1; (e.Sync != nil) != is || (e.Kind == client.KindSync) != is {
				t.Errorf("%s kinds %v: event %d is of kind %s: %+v", tc.path, tc.kinds, i, e.Kind, e.Sync)
			}
			if tc.path == "" {
				checkEnvelope(t, e, want[i])
			}
		}
	}
}

// TestBadSyncEvent: an event whose CAR is no base64 is an error, as any that cannot be read.
func TestBadSyncEvent(t *testing.T) {
	var s client.Sync
	for _, bad := range []string{`{"blocks":{"$bytes":"AA=="}}`, `{"blocks":{"$bytes":"!"}}`, `{"blocks":"AA"}`, `[]`} {
		if s.UnmarshalJSON([]byte(bad)) == nil {
			t.Errorf("%s is read as %+v", bad, s)
		}
	}
}
