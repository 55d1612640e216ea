package relaysim

import (
	"slices"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"millrace/consume/relaysim/cbor"
)

// Limits of references, as consumers have them.
const (
	maxReferences      = 256  // of a record
	maxFrameReferences = 4096 // of a frame
	maxReferencePath   = 512  // bytes
)

// Reference is a value of a record that is a valid DID or AT URI: its path and the value.
type Reference [2]string

// Path says where in the record the reference is, as Constellation does.
func (r Reference) Path() string { return r[0] }

// Subject is the DID or AT URI.
func (r Reference) Subject() string { return r[1] }

// findReferences returns the references of a decoded record, at most so many, in the order of a
// record whose members are in DAG-CBOR's order.
func findReferences(record any, most int) (found []Reference) {
	most = min(most, maxReferences)
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for _, name := range cbor.CanonicalKeys(value) {
				walk(path+"."+name, value[name])
			}
		case []any:
			for _, element := range value {
				object, _ := element.(map[string]any)
				name, _ := object["$type"].(string)
				walk(path+"["+name+"]", element)
			}
		case string:
			r := Reference{strings.TrimPrefix(path, "."), value}
			_, errDID := syntax.ParseDID(value)
			_, errURI := syntax.ParseATURI(value)
			if (errDID == nil || errURI == nil) && len(r.Path()) <= maxReferencePath && len(found) < most && !slices.Contains(found, r) {
				found = append(found, r)
			}
		}
	}
	walk("", record)
	return found
}
