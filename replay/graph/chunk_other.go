//go:build !unix

package graph

func mapChunk() ([]byte, error) { return make([]byte, chunkBytes), nil }

func unmapChunk([]byte) {}
