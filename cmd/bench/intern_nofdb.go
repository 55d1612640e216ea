//go:build !fdb

package main

import (
	"context"
	"errors"

	"millrace/intern/kv"
)

func foundationDirectory(context.Context, *internFlags) (kv.Store, func(), error) {
	return nil, nil, errors.New("this bench was built without FoundationDB: go run -tags fdb ./cmd/bench …")
}
