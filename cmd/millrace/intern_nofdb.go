//go:build !fdb

package main

import (
	"context"
	"log/slog"
)

// hasFoundation reports whether --intern=fdb works.
const hasFoundation = false

func openFoundation(context.Context, string, bool, *slog.Logger) (closableStore, error) {
	return nil, errNoFoundation
}
