package consume

import (
	"bytes"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
)

const wantLog = `level=WARN msg="not connected to relay" host=relay.test cause=refused err="the relay answered 429 Too Many Requests, RateLimitExceeded: 50 of 50" up=0s advice="it takes no more connections from here for now: end other consumers on this machine; it is tried again"
level=INFO msg="connected to relay" host=relay.test epoch=0 cursor=10
level=INFO msg="the relay sent an info frame" name=Fnord message="because of Fnord"
level=WARN msg="the relay sent an error frame" name=Fnord message="because of Fnord"
level=WARN msg="not connected to relay" host=relay.test cause=error_frame err="the relay sent error frame Fnord: because of Fnord" up=10s
level=INFO msg="connected to relay" host=relay.test epoch=0 cursor=12
level=WARN msg="frames lie below the last one: they are repeats, or the relay restarted its numbering" epoch=0 last_seq=12 seq=5 patience=5m0s
level=INFO msg="the relay's numbers are at or above the last one again" epoch=0 last_seq=12 seq=13 repeats=2
level=WARN msg="not connected to relay" host=relay.test cause=lost
level=INFO msg="connected to relay" host=relay.test epoch=0 cursor=13
level=WARN msg="frames lie below the last one: they are repeats, or the relay restarted its numbering" epoch=0 last_seq=13 seq=5 patience=5m0s
level=INFO msg="the relay's numbers are at or above the last one again" epoch=0 last_seq=13 seq=20 repeats=1
level=INFO msg="not connected to relay" host=relay.test cause=left_out err=<nil> up=0s
level=INFO msg="connected to relay" host=relay.test epoch=0 cursor=13
level=WARN msg="gap: frames may be lost" from_epoch=0 from_seq=13 to_epoch=0 to_seq=20
level=WARN msg="skipped a message over the size limit" limit_bytes=5242880 type=#commit seq=21
level=WARN msg="not connected to relay" host=relay.test cause=lost
level=INFO msg="connected to relay" host=relay.test epoch=0 cursor=21
level=ERROR msg="the relay says that the cursor is in its future; it may have restarted its numbering" epoch=0 last_seq=21 patience=5m0s
level=WARN msg="the relay sent an error frame" name=FutureCursor message="because of FutureCursor"
level=INFO msg="the relay's numbers are at or above the last one again" epoch=0 last_seq=21 seq=22 repeats=0
`

// TestLogOfDropped: an address that sends what no relay sends is named, some times.
func TestLogOfDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := pipeRelay(t, func(p *peer) {
			p.ws.WriteMessage(websocket.TextMessage, []byte(`{"kind":"commit"}`))
			for range 99 {
				p.send([]byte("garbage"))
			}
			p.commits(11, 11)
			p.wait()
		})
		var out bytes.Buffer
		c := start(t, l, Config{Cursor: 10, Logger: slog.New(slog.NewJSONHandler(&out, nil))})
		wantFrames(t, c, 1, "0/11")
		c.stop()
		text, header := strings.Count(out.String(), `"reason":"text"`), strings.Count(out.String(), `"reason":"bad_header"`)
		if text != 1 || header != 4 {
			t.Errorf("logged %d and %d times:\n%s", text, header, out.String())
		}
	})
}

// TestLog compares all that is logged of a relay in trouble, but for random times.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			switch p.n {
			case 2:
				p.commits(11, 12)
				p.send(infoFrameOf("Fnord"), errorFrameOf("Fnord"))
			case 3:
				p.commits(5, 6)
				p.commits(13, 13)
				return
			case 4:
				p.commits(5, 5)
				p.commits(20, 20)
			case 5:
				p.commits(20, 20)
				p.send(frameOf(TypeCommit, 21, maxMessageBytes))
				return
			case 6:
				p.send(errorFrameOf(errorFutureCursor))
				p.commits(22, 22)
			}
			p.wait()
		})
		r.refusal = func(n int, w http.ResponseWriter) bool {
			if n == 1 {
				http.Error(w, `{"error":"RateLimitExceeded","message":"50 of 50"}`, http.StatusTooManyRequests)
			}
			return n == 1
		}
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "retry_in" {
				return slog.Attr{}
			}
			return a
		}}))
		c := start(t, l, Config{Cursor: 10, Logger: logger})
		c.until(t, 6)
		testwait.Elapse(time.Second)
		c.stop()
		lost := regexp.MustCompile("(cause=lost) .*") // in one of two ways
		got := strings.Split(lost.ReplaceAllString(out.String(), "$1"), "\n")
		if diff := cmp.Diff(strings.Split(wantLog, "\n"), got); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}
