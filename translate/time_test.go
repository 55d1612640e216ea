package translate

import "testing"

// Batch.Time is that of the newest frame that was kept.
func TestBatchTime(t *testing.T) {
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	identity := func(time string) []byte {
		return frameOf("#identity", cborMap{{"did", "did:plc:ewvi7nxzyoun6zhxrhs64oiz"}, {"seq", 7}, {"time", time}})
	}
	var b Batch
	for _, step := range []struct {
		frame []byte
		want  string
	}{
		{identity("2026-11-20T00:00:01Z"), "2026-11-20T00:00:01Z"},
		{identity("2026-11-20T00:00:02.5+01:00"), "2026-11-20T00:00:02.5+01:00"},
		{identity("yesterday"), "2026-11-20T00:00:02.5+01:00"},
		{frameOf("#sync", cborMap{{"seq", 8}, {"time", "2026-11-20T00:00:09Z"}}), "2026-11-20T00:00:02.5+01:00"},
	} {
		tr.AppendFrame(&b, step.frame)
		if string(b.Time) != step.want {
			t.Errorf("after a frame: %q, want %q", b.Time, step.want)
		}
	}
	if b.Reset(); len(b.Time) != 0 {
		t.Error("Reset keeps the time")
	}
}
