package public

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// TestLeftOut: a live subscriber of the extended wire gets the number of events that were left out,
// at most once a minute. Others do not.
func TestLeftOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var total atomic.Int64
		total.Store(100)
		l := newTestLog(t)
		all := l.add(posts(2)...)
		s := serveBubble(t, l, func(c *Config, _ *timing) { c.LeftOut = total.Load })
		plain, c := s.dial("cursor=0"), s.dial("cursor=0&extended=true")
		plain.want(all...)
		c.wantExtended(all...)
		c.info("live")
		say := func(events int64) {
			t.Helper()
			e := l.add(posts(1)...)
			plain.want(e...)
			c.wantExtended(e...)
			if events == 0 {
				return
			}
			if m := c.info("left_out"); fmt.Sprint(m["events"]) != fmt.Sprint(events) {
				t.Errorf("%v, want %d events", m, events)
			}
		}
		total.Add(7)
		say(0) // within a minute
		time.Sleep(leftOutEvery)
		say(7)
		total.Add(1)
		say(0)
		time.Sleep(leftOutEvery)
		say(1)
		time.Sleep(leftOutEvery)
		say(0) // nothing new
	})
}
