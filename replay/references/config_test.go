package references

import (
	"strings"
	"testing"
)

// TestConfig: a field that cannot be used is named, and the bounds themselves can be used.
func TestConfig(t *testing.T) {
	for _, tc := range []struct {
		field  string // "": the configuration is valid
		change func(*Config)
	}{
		{"Dir", func(c *Config) { c.Dir = "" }},
		{"KeepGoing", func(c *Config) { c.KeepGoing = true }},
		{"", func(c *Config) { c.KeepGoing, c.ReadOnly = true, true }},
		{"PrefixBits", func(c *Config) { c.PrefixBits = -1 }},
		{"PrefixBits", func(c *Config) { c.PrefixBits = 33 }},
		{"", func(c *Config) { c.PrefixBits = 32 }},
		{"", func(c *Config) { c.PrefixBits = 1 }},
		{"PebbleBytes", func(c *Config) { c.PebbleBytes = 3<<20 - 1 }},
		{"", func(c *Config) { c.PebbleBytes = 3 << 20 }},
		{"OverlayBytes", func(c *Config) { c.OverlayBytes = -1 }},
		{"AccountBytes", func(c *Config) { c.AccountBytes = -1 }},
		{"OpenFiles", func(c *Config) { c.OpenFiles = -1 }},
		{"", func(c *Config) { c.OverlayBytes, c.AccountBytes, c.OpenFiles = 1, 1, 1 }},
	} {
		cfg := Config{Dir: "refs"}
		tc.change(&cfg)
		err := cfg.withDefaults().validate()
		if tc.field == "" && err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
		if tc.field != "" && (err == nil || !strings.HasPrefix(err.Error(), "references: field "+tc.field+": ")) {
			t.Errorf("field %s: %v", tc.field, err)
		}
	}
	want := Config{PebbleBytes: 1, OverlayBytes: 2, AccountBytes: 3, OpenFiles: 4}
	got := want.withDefaults()
	if got.PebbleBytes != 1 || got.OverlayBytes != 2 || got.AccountBytes != 3 || got.OpenFiles != 4 {
		t.Errorf("what was set became %+v", got)
	}
}
