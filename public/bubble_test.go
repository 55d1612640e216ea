package public

import (
	"testing"
	"testing/synctest"

	"millrace/consume/relaysim/pipenet"
	"millrace/dict"
)

// bubble runs a test on a clock of its own that stands still while anybody works. What takes
// minutes takes none, and however slow the machine is nobody is late. Its servers are those of
// serveBubble.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// serveBubble is serve without sockets, which a bubble cannot see through.
func serveBubble(t testing.TB, l *testLog, change func(*Config, *timing)) *testServer {
	t.Helper()
	return serveSourceBubble(t, eventLogOf(l.Log), l.dictionaries, change)
}

// serveSourceBubble is serveSource without sockets.
func serveSourceBubble(t testing.TB, src eventLog, dictionaries *dict.Registry, change func(*Config, *timing)) *testServer {
	t.Helper()
	l := pipenet.Listen()
	s := serveOn(t, l, src, dictionaries, change)
	s.dialer.NetDialContext, s.pipes = l.Dial, l
	return s
}
