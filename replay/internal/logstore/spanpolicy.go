package logstore

import (
	"math"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
)

// SpanPolicy makes Pebble end a table where a range of keys ends, so that no table has keys of two
// ranges. Values that compression makes smaller are compressed with MinLZ, or with snappy where
// MinLZ has no assembly. The plain part is compressed already. The zstd part would become smaller,
// but a cold compressed reader slower. Values that are not compressed go to blob files.
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
