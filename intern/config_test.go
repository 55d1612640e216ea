package intern

import (
	"strings"
	"testing"
	"time"

	"millrace/intern/kv/simkv"
)

// TestConfig: a field that cannot be used is named, and the bounds themselves can be used.
func TestConfig(t *testing.T) {
	for _, tc := range []struct {
		field  string // "": the configuration is valid
		change func(*Config)
	}{
		{"Store", func(c *Config) { c.Store = nil }},
		{"PrefixBits", func(c *Config) { c.PrefixBits = -1 }},
		{"PrefixBits", func(c *Config) { c.PrefixBits = 33 }},
		{"", func(c *Config) { c.PrefixBits = 1 }},
		{"", func(c *Config) { c.PrefixBits = 32 }},
		{"Workers", func(c *Config) { c.Workers = -1 }},
		{"Workers", func(c *Config) { c.Workers = 4097 }},
		{"", func(c *Config) { c.Workers = 4096 }},
		{"NameBytes", func(c *Config) { c.NameBytes = -1 }},
		{"", func(c *Config) { c.CacheBytes = -1 }},
		{"Timeout", func(c *Config) { c.Timeout = -1 }},
		{"Scope", func(c *Config) { c.Scope = ScopeDIDs + 1 }},
		{"", func(c *Config) { c.Scope = ScopeDIDs }},
	} {
		cfg := Config{Store: simkv.New(simkv.Config{})}
		tc.change(&cfg)
		err := cfg.validate()
		if tc.field == "" && err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
		if tc.field != "" && (err == nil || !strings.HasPrefix(err.Error(), "intern: field "+tc.field+": ")) {
			t.Errorf("field %s: %v", tc.field, err)
		}
	}
	got := Config{Store: simkv.New(simkv.Config{}), Workers: 1, hooks: testHooks{batchStrings: 2}, CacheBytes: 3, Timeout: time.Millisecond, Seed: 4}.withDefaults()
	if got.Workers != 1 || got.hooks.batchStrings != 2 || got.CacheBytes != 3 || got.Timeout != time.Millisecond || got.Seed != 4 {
		t.Errorf("what was set became %+v", got)
	}
}
