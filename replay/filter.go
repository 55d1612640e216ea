package replay

import "millrace/translate"

// KindSet is a set of event kinds. The zero KindSet stands for all of them.
type KindSet uint8

// Kinds returns the set of ks.
func Kinds(ks ...translate.Kind) KindSet {
	var s KindSet
	for _, k := range ks {
		s |= 1 << k
	}
	return s
}

// Has says whether k is in the set.
func (s KindSet) Has(k translate.Kind) bool { return s == 0 || s&(1<<k) != 0 }

// FilterConfig says which events pass. The zero value passes all.
type FilterConfig struct {
	// Collections are exact NSIDs, or prefixes if they end in '*' (which is taken off): "a.b.*"
	// passes "a.b.c" and "a.b.c.d". Identity and account events pass any of them. Empty: all.
	Collections []string
	DIDs        []string // filter every kind of event; empty: all
	Kinds       KindSet
	// MaxPayloadBytes leaves out larger events, measured as they would be sent (compressed,
	// extended), without the websocket header; 0: no limit.
	MaxPayloadBytes int
}

// Filter is a compiled FilterConfig. It is immutable and may be shared by any number of readers.
type Filter struct {
	cfg FilterConfig
}

// NewFilter compiles cfg; it keeps nothing of it.
func NewFilter(cfg FilterConfig) (*Filter, error) { panic("not built yet") }
