package public

import (
	"bytes"
	"io"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/gorilla/websocket"

	"millrace/public/internal/admission"
)

type dialer = websocket.Dialer

// syncBuffer is a buffer that many goroutines may write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newTextLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// unlimited is a quota that is never used up.
func unlimited() admission.Quota {
	return admission.New(admission.Config{Bytes: 1 << 40}).Quota(admission.Unsent, netip.IPv6Loopback())
}
