//go:build unix

package consume

import (
	"syscall"
	"testing"
	"time"
)

// awaitBytes waits until n bytes are in the socket, to be read.
func awaitBytes(t *testing.T, raw syscall.RawConn, n int) {
	t.Helper()
	p, have := make([]byte, n), 0
	for end := time.Now().Add(patience); have < n; time.Sleep(time.Millisecond) {
		err := raw.Control(func(fd uintptr) {
			have, _, _ = syscall.Recvfrom(int(fd), p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		})
		if err != nil || time.Now().After(end) {
			t.Errorf("%d of %d bytes came: %v", have, n, err)
			return
		}
	}
}
