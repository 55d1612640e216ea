package ingest

import "testing"

func TestConfig(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no log", Config{InFlightBytes: 1}, "ingest: field Log: must be set"},
		{"no memory", Config{Log: &fakeLog{}}, "ingest: field InFlightBytes: 0 is not positive"},
		{"negative group", Config{Log: &fakeLog{}, InFlightBytes: 1, AppendBytes: -1}, "ingest: field AppendBytes: -1 is negative"},
		{"references without UIDs", Config{Log: &fakeLog{}, InFlightBytes: 1, References: struct{ References }{}}, "ingest: field References: needs NewResolver"},
		{"negative memory", Config{Log: &fakeLog{}, InFlightBytes: -1}, "ingest: field InFlightBytes: -1 is not positive"},
		{"least", Config{Log: &fakeLog{}, InFlightBytes: 1}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := New(tc.cfg)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tc.want || (p == nil) != (err != nil) {
				t.Errorf("New: %v, %q; want the error %q", p, got, tc.want)
			}
		})
	}
}
