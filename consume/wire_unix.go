//go:build unix

package consume

import (
	"io"
	"os"
	"syscall"
)

const canLook = true

// lookInto reads from a socket that does not block.
func lookInto(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		switch {
		case err == syscall.EINTR: //nolint:errorlint // it comes from the system as it is
			continue
		case err == syscall.EAGAIN: //nolint:errorlint // likewise
			return 0, errNothing
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}
