package graph

import (
	"strings"
	"testing"
)

// TestConfig: a field that cannot be used is named, and the bounds themselves can be used.
func TestConfig(t *testing.T) {
	for _, tc := range []struct {
		field string // "": the configuration is valid
		cfg   Config
	}{
		{"Sources", Config{}},
		{"Sources", Config{Sources: make([]string, 65)}},
		{"", Config{Sources: make([]string, 64), Memory: 2 * chunkBytes}},
		{"", Config{Sources: make([]string, 1)}},
		{"Memory", Config{Sources: make([]string, 1), Memory: 2*chunkBytes - 1}},
		{"Memory", Config{Sources: make([]string, 1), Memory: -1}},
	} {
		g, err := New(tc.cfg)
		if err == nil {
			g.Close()
		}
		if tc.field == "" && err != nil {
			t.Errorf("%d sources, memory %d: %v", len(tc.cfg.Sources), tc.cfg.Memory, err)
		}
		if tc.field != "" && (err == nil || !strings.HasPrefix(err.Error(), "graph: field "+tc.field+": ")) {
			t.Errorf("field %s: %v", tc.field, err)
		}
	}
}
