// Package viewapitest has what the tests of APIs over views share.
package viewapitest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"millrace/intern"
)

// UIDs is a UID store in memory: viewapi.UIDs.
type UIDs struct {
	Names []string // by UID - 1
	Down  error    // what each look-up returns; nil: look-ups work
}

// UID returns the UID of a string, which it gets if it has none.
func (u *UIDs) UID(name string) uint64 {
	if !slices.Contains(u.Names, name) {
		u.Names = append(u.Names, name)
	}
	return uint64(slices.Index(u.Names, name) + 1)
}

// LookupStrings implements viewapi.UIDs.
func (u *UIDs) LookupStrings(_ context.Context, names []string, uids []uint64) error {
	for i, name := range names {
		if !strings.HasPrefix(name, "did:") && !strings.HasPrefix(name, "at://") || strings.HasSuffix(name, ":") {
			return &intern.InvalidError{Index: i, Reason: "neither"}
		}
		uids[i] = uint64(slices.Index(u.Names, name) + 1)
	}
	return u.Down
}

// LookupUIDs implements viewapi.UIDs.
func (u *UIDs) LookupUIDs(_ context.Context, uids []uint64, names []string) error {
	for i, uid := range uids {
		names[i] = u.Names[uid-1]
	}
	return u.Down
}

// Get asks h for a path.
func Get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}
