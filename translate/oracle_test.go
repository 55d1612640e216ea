package translate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"runtime/debug"

	"github.com/bluesky-social/indigo/atproto/atdata"
)

// indigoRecord returns the JSON that indigo's data model makes of a record. Where fixBytes is set,
// it is kept from failing on an empty byte string, which is one of the differences.
func indigoRecord(record []byte, fixBytes bool) (out []byte, err error) {
	defer func() { // refmt, below indigo, panics on some input
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	obj, err := atdata.UnmarshalCBOR(record)
	if err != nil {
		return nil, err
	}
	if fixBytes {
		fillBytes(obj)
	}
	return json.Marshal(obj)
}

// fillBytes makes the nil byte strings within a value empty ones.
func fillBytes(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = fillBytes(e)
		}
	case []any:
		for i, e := range v {
			v[i] = fillBytes(e)
		}
	case atdata.Bytes:
		if v == nil {
			return atdata.Bytes{}
		}
	}
	return v
}

// ourRecord returns the JSON that this package makes of a record.
func ourRecord(c *recordCoder, record []byte) (out []byte, ok bool) {
	const before = "before"
	out, ok = c.appendRecord([]byte(before), record, math.MaxInt)
	if !bytes.HasPrefix(out, []byte(before)) {
		panic("appendRecord touched what was there")
	}
	return out[len(before):], ok
}
