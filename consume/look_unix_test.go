//go:build unix

package consume

import (
	"syscall"
	"testing"

	"millrace/consume/relaysim/testwait"
)

// awaitBytes waits until n bytes are in the socket, to be read.
func awaitBytes(t *testing.T, raw syscall.RawConn, n int) {
	t.Helper()
	p, have := make([]byte, n), 0
	var err error
	testwait.Becomes(patience, func() bool {
		err = raw.Control(func(fd uintptr) {
			have, _, _ = syscall.Recvfrom(int(fd), p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		})
		return have >= n || err != nil
	})
	if have < n {
		t.Errorf("%d of %d bytes came: %v", have, n, err)
	}
}
