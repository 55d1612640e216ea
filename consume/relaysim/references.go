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
func findReferences(record any, most int) []Reference {
	f := referenceFinder{most: min(most, maxReferences)}
	f.walk("", record)
	return f.found
}

type referenceFinder struct {
	most  int
	found []Reference
}

func (f *referenceFinder) walk(path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range cbor.CanonicalKeys(value) {
			f.walk(path+"."+name, value[name])
		}
	case []any:
		for _, element := range value {
			object, _ := element.(map[string]any)
			name, _ := object["$type"].(string)
			f.walk(path+"["+name+"]", element)
		}
	case string:
		f.add(Reference{strings.TrimPrefix(path, "."), value})
	}
}

func (f *referenceFinder) add(r Reference) {
	_, errDID := syntax.ParseDID(r.Subject())
	_, errURI := syntax.ParseATURI(r.Subject())
	if errDID != nil && errURI != nil || len(r.Path()) > maxReferencePath {
		return
	}
	if len(f.found) < f.most && !slices.Contains(f.found, r) {
		f.found = append(f.found, r)
	}
}
