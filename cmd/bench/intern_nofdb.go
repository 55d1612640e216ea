//go:build !fdb

package main

import (
	"context"
	"errors"

	"millrace/intern/kv"
)

var errNoFoundation = errors.New("this bench was built without FoundationDB: go run -tags fdb ./cmd/bench …")

func openFoundation(context.Context, *internFlags, []string) (kv.Store, error) {
	return nil, errNoFoundation
}

func foundationDirectory(context.Context, *internFlags, string) (kv.Store, func(), error) {
	return nil, nil, errNoFoundation
}

func removeFoundation(*internFlags, []string) {}
