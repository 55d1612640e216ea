//go:build !cgo

package dict

// checkLoads has nothing to add to Parse's own check in this build.
func checkLoads([]byte) error { return nil }

// Libzstd says whether an Encoder is libzstd; else it is klauspost/compress.
const Libzstd = false

func newCoder(d *Dictionary) (coder, error) { return newPureCoder(d) }
