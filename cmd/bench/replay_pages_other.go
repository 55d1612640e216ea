//go:build !linux

package main

import (
	"errors"
	"os"
)

// dropPages is not possible here.
func dropPages(*os.File) error { return errors.ErrUnsupported }
