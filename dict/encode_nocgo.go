//go:build !cgo

package dict

// newCoder returns the coder of this build.
func newCoder(d *Dictionary) (coder, error) { return newPureCoder(d, pureLevel) }

// checkLoads has nothing to add to Parse's own check in this build.
func checkLoads([]byte) error { return nil }

func libzstdMethods() []Method { return nil }
