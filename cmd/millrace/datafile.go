package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// readDataFile reads a small JSON file of a data directory. It returns nil if there is none.
func readDataFile[T any](dataDir, name string) (*T, error) {
	path := filepath.Join(dataDir, name)
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	v := new(T)
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return v, nil
}
