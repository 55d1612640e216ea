package public

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestHTTP10IsNotUpgraded: a server must ignore the Upgrade header of HTTP/1.0 (RFC 9110, 7.8).
func TestHTTP10IsNotUpgraded(t *testing.T) {
	checkHandshakeRefused(t, "HTTP/1.0\r\n%s\r\n", "HTTP/1.1")
}

// TestHandshakeWithBody: what follows the headers of a handshake are frames. A body gets a reason.
func TestHandshakeWithBody(t *testing.T) {
	checkHandshakeRefused(t, "HTTP/1.1\r\n%sContent-Length: 2\r\n\r\n{}", "no body")
	checkHandshakeRefused(t, "HTTP/1.1\r\n%sTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "no body")
}

// checkHandshakeRefused sends a handshake, whose version and headers the format has around those of
// a sound one. The answer is 400 and says why.
func checkHandshakeRefused(t *testing.T, format, says string) {
	t.Helper()
	s := serve(t, newTestLog(t), nil)
	nc := s.connect()
	fmt.Fprintf(nc, "GET /subscribe "+format, "Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
	nc.SetReadDeadline(time.Now().Add(patience()))
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body := bodyOf(resp); resp.StatusCode != 400 || !strings.Contains(body, says) {
		t.Errorf("%s %q", resp.Status, body)
	}
	if got := resp.Header.Get("Sec-WebSocket-Version"); got != "13" { // RFC 6455, 4.4
		t.Errorf("Sec-WebSocket-Version %q", got)
	}
	s.waitMetric("rejected_total", rejectHandshake, 1)
	if s.count.Load() != 0 {
		t.Errorf("%d subscribers", s.count.Load())
	}
}
