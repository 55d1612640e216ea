package public

import (
	"reflect"
	"testing"

	"millrace/replay"
)

// TestSharedFilters has users of equal filters come and go.
func TestSharedFilters(t *testing.T) {
	table := sharedFilters{of: make(map[string]*sharedFilter)}
	take := func(cfg replay.FilterConfig) *sharedFilter {
		t.Helper()
		f, err := table.take(filterKey(&cfg), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first := take(replay.FilterConfig{Collections: []string{"com.a.b", "com.a.c"}})
	second := take(replay.FilterConfig{Collections: []string{"com.a.c", "com.a.b"}})
	if first != second {
		t.Error("the same collections in another order make another filter")
	}
	first.release()
	third := take(replay.FilterConfig{Collections: []string{"com.a.b", "com.a.c"}})
	if third != second {
		t.Error("a filter that is in use was forgotten")
	}
	second.release()
	third.release()
	if n := len(table.of); n > 0 {
		t.Errorf("%d filters are kept that nobody has", n)
	}
	if _, err := table.take("invalid", replay.FilterConfig{MaxPayloadBytes: -1}); err == nil || len(table.of) > 0 {
		t.Errorf("an invalid filter is kept: %v", err)
	}
}

// TestFilterKeys: filters that pass different events have different keys.
func TestFilterKeys(t *testing.T) {
	seen := make(map[string]int)
	for i, cfg := range []replay.FilterConfig{
		{},
		{Kinds: 1},
		{MaxPayloadBytes: 1},
		{Collections: []string{"com.a.b"}},
		{Collections: []string{"com.a.b", "net.*"}},
		{Collections: []string{"com.a.b net.*"}}, // prefixes may have any byte
		{Collections: []string{`com.a.b" "net.*`}},
		{Collections: []string{"com.a.b"}, Kinds: 1},
		{Collections: []string{"com.a.b"}, MaxPayloadBytes: 1},
	} {
		key := filterKey(&cfg)
		if other, ok := seen[key]; ok {
			t.Errorf("filters %d and %d have key %s", other, i, key)
		}
		seen[key] = i
	}
	for i, cfg := range []replay.FilterConfig{
		{DIDs: []string{didN(1)}}, {Subjects: []uint64{}}, {SubjectDIDs: []uint64{}}, {Sources: []string{}},
	} {
		if key := filterKey(&cfg); key != "" {
			t.Errorf("filter %d is shared, as %s", i, key)
		}
	}
}

// TestFilterKeysHaveEachField: a filter with any one field set is shared with none without it.
func TestFilterKeysHaveEachField(t *testing.T) {
	for f := range reflect.TypeFor[replay.FilterConfig]().Fields() {
		var cfg replay.FilterConfig
		v := reflect.ValueOf(&cfg).Elem().FieldByIndex(f.Index)
		switch {
		case f.Type.Kind() == reflect.Slice:
			v.Set(reflect.MakeSlice(f.Type, 1, 1))
		case v.CanInt():
			v.SetInt(1)
		case v.CanUint():
			v.SetUint(1)
		default:
			t.Fatalf("this test cannot set %s", f.Name)
		}
		if filterKey(&cfg) == filterKey(&replay.FilterConfig{}) {
			t.Errorf("%s is not in the key", f.Name)
		}
	}
}

// TestFilterIsSharedUntilUpdate: subscribers with equal filters share one until they update it.
func TestFilterIsSharedUntilUpdate(t *testing.T) {
	l := newTestLog(t)
	l.add(posts(1)...)
	s := serve(t, l, nil)
	filters := func(want int) {
		t.Helper()
		s.filters.mu.Lock()
		defer s.filters.mu.Unlock()
		if n := len(s.filters.of); n != want {
			t.Errorf("%d filters, want %d", n, want)
		}
	}
	c := s.dial("wantedCollections=com.a.b")
	s.dial("wantedCollections=com.a.b")
	filters(1)
	c.update(`{"wantedCollections":["com.a.c"]}`)
	s.waitUpdates(1)
	filters(2)
	c.update(`{"wantedCollections":["com.a.b"]}`)
	s.waitUpdates(2)
	s.waitIdle(2)
	filters(1)
}
