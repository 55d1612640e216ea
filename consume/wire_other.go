//go:build !unix

package consume

const canLook = false

func lookInto(uintptr, []byte) (int, error) { return 0, errNothing }
