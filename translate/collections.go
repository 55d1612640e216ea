package translate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// collectionSet is the set of collections to keep. The zero value holds all.
type collectionSet struct {
	exact    [][]byte // sorted
	prefixes [][]byte // each ends in a dot
}

// newCollectionSet makes a set of exact NSIDs and patterns such as app.bsky.*, which stand for
// whatever begins with what comes before the star.
func newCollectionSet(patterns []string) (collectionSet, error) {
	var set collectionSet
	for _, p := range patterns {
		prefix, isPrefix := strings.CutSuffix(p, "*")
		switch {
		case isPrefix && validNSIDPrefix(prefix):
			set.prefixes = append(set.prefixes, []byte(prefix))
		case !isPrefix && validNSID([]byte(p)):
			set.exact = append(set.exact, []byte(p))
		default:
			return collectionSet{}, fmt.Errorf("collection %.400q is neither an NSID nor a prefix such as app.bsky.*", p)
		}
	}
	slices.SortFunc(set.exact, bytes.Compare)
	return set, nil
}

// validNSIDPrefix reports whether p is one or more segments of an NSID, each with a dot after it.
func validNSIDPrefix(p string) bool {
	segments, ok := strings.CutSuffix(p, ".")
	if !ok || len(p) > maxNSIDBytes {
		return false
	}
	for i, s := range strings.Split(segments, ".") {
		if !validNSIDSegment([]byte(s), i == 0) {
			return false
		}
	}
	return true
}

// holds reports whether the set holds a collection.
func (s *collectionSet) holds(collection []byte) bool {
	if len(s.exact) == 0 && len(s.prefixes) == 0 {
		return true
	}
	if _, found := slices.BinarySearchFunc(s.exact, collection, bytes.Compare); found {
		return true
	}
	for _, p := range s.prefixes {
		if bytes.HasPrefix(collection, p) {
			return true
		}
	}
	return false
}
