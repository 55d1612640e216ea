//go:build fdb

package fdbkv

import (
	"context"
	"errors"
	"testing"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"millrace/intern/kv"
)

// TestTranslate has the meaning of each error that matters, of a read and of a commit.
func TestTranslate(t *testing.T) {
	for code, want := range map[int][2]error{
		1020: {kv.ErrConflict, kv.ErrConflict},
		1021: {kv.ErrUnavailable, kv.ErrUnknownOutcome},
		1022: {kv.ErrUnavailable, kv.ErrUnknownOutcome},
		1025: {kv.ErrUnavailable, kv.ErrUnknownOutcome},
		1031: {kv.ErrUnavailable, kv.ErrUnknownOutcome},
		1039: {kv.ErrUnavailable, kv.ErrUnknownOutcome},
		1510: {kv.ErrUnavailable, kv.ErrUnknownOutcome},
		1007: {kv.ErrTooOld, kv.ErrTooOld},
		1009: {kv.ErrUnavailable, kv.ErrUnavailable},
		1038: {kv.ErrUnavailable, kv.ErrUnavailable},
		1042: {kv.ErrUnavailable, kv.ErrUnavailable},
		1213: {kv.ErrUnavailable, kv.ErrUnavailable},
		2101: {kv.ErrTooLarge, kv.ErrTooLarge},
		2102: {kv.ErrTooLarge, kv.ErrTooLarge},
		2103: {kv.ErrTooLarge, kv.ErrTooLarge},
	} {
		for i, commit := range []bool{false, true} {
			if err := translate(context.Background(), fdb.Error{Code: code}, commit); !errors.Is(err, want[i]) {
				t.Errorf("%d, commit %v: %v, want %v", code, commit, err, want[i])
			}
		}
	}
	// The texts in which the directory layer reports errors of its allocator.
	for text, want := range map[string]bool{
		"unable to allocate new directory prefix (" + fdb.Error{Code: 1025}.Error() + ")": true,
		"unable to allocate new directory prefix (" + fdb.Error{Code: 2000}.Error() + ")": false,
		"FoundationDB error code of old": false,
		"the directory exists":           false,
	} {
		if err := translate(context.Background(), errors.New(text), false); kv.Retryable(err) != want {
			t.Errorf("%q: tried again %v, want %v", text, !want, want)
		}
	}
	if err := translate(context.Background(), fdb.Error{Code: 2000}, true); kv.Retryable(err) {
		t.Errorf("a client error is tried again: %v", err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := translate(ended, fdb.Error{Code: 1025}, true); !errors.Is(err, context.Canceled) || !errors.Is(err, kv.ErrUnknownOutcome) {
		t.Errorf("cancelled: %v", err)
	}
}
