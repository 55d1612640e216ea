//go:build !fdb

package main

import (
	"context"
	"errors"
	"log/slog"
)

// openFoundation says that this binary cannot.
func openFoundation(context.Context, string, *slog.Logger) (closableStore, error) {
	return nil, usageError{errors.New("--intern=fdb: this binary was built without -tags fdb; make build-fdb builds one with it, " +
		"or use --intern=pebble or off")}
}
