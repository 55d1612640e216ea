package logstore

import (
	"math"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
)

// SpanPolicy makes Pebble end a table where a range ends, so that no table spans two of them.
// Pebble compresses what becomes smaller by it: with MinLZ where its assembly is, else with snappy.
// The plain part is compressed already. The zstd part would become smaller, but slow down a cold
// compressed reader. What it does not compress goes to blob files.
func SpanPolicy(start []byte) (pebble.SpanPolicy, []byte, error) {
	if len(start) == 0 {
		return pebble.SpanPolicy{}, format.RangeMeta.Start(), nil
	}
	var p pebble.SpanPolicy
	r := format.Range(start[0])
	switch r {
	case math.MaxUint8:
		return p, nil, nil
	case format.RangePlain, format.RangeZstd, format.RangeCopiesPlain, format.RangeCopiesZstd:
	default:
		p.PreferFastCompression = true
		p.ValueStoragePolicy = pebble.ValueStorageLowReadLatency
	}
	return p, r.End(), nil
}
