//go:build !unix

package graph

func mapBytes(n int) ([]byte, error) { return make([]byte, n), nil }

func unmapBytes([]byte) {}
