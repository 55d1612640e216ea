package public

import (
	"testing"
	"time"

	"millrace/public/internal/admission"
)

// TestFilterThatIsNeverInForce: a filter that another one replaces before the pull loop takes it
// gives its bytes back.
func TestFilterThatIsNeverInForce(t *testing.T) {
	server := &Server{admission: admission.New(admission.Config{Bytes: 1 << 20, BytesPerAddress: 1 << 20})}
	s := &subscriber{server: server, conn: newConn(nil, 0)}
	post := func(bytes int64) {
		quota := server.admission.Quota(admission.Filters, s.client)
		if !quota.Reserve(bytes) {
			t.Fatal("no memory for a filter")
		}
		s.post(filter{quota: quota, bytes: bytes})
	}
	post(1000)
	post(200)
	if n := server.admission.Stats().Bytes; n != 200 {
		t.Errorf("%d bytes are counted while one filter of 200 waits", n)
	}
	if !s.takeFilter() || s.takeFilter() || s.filter.bytes != 200 {
		t.Error("the last filter is not in force, or twice")
	}
}

// TestFirstEndingCounts: what comes after the first ending changes neither it nor its time.
func TestFirstEndingCounts(t *testing.T) {
	var m mailbox
	m.putEnding(ending{reason: endSlow, patience: time.Hour})
	at := m.ending.Load().at
	m.putEnding(ending{reason: endClientGone})
	if e := m.ending.Load(); e.reason != endSlow || e.at != at || m.cut() {
		t.Errorf("the ending is %+v", e)
	}
}

// TestEndWithoutTurn: a subscriber that ends while it waits for its turn keeps no bytes of chunks.
func TestEndWithoutTurn(t *testing.T) {
	server := &Server{}
	chunks := admission.NewChunks(maxChunkBytes)
	server.catchUp.chunks = chunks
	taken := func() bool {
		select {
		case <-chunks.Take(maxChunkBytes):
			return true
		default:
			return false
		}
	}
	if !taken() {
		t.Fatal("there are no bytes")
	}
	s := &subscriber{server: server, conn: newConn(nil, 0)}
	s.putEnding(ending{reason: endClientGone})
	if ok, err := s.awaitTurn(); ok || err != nil {
		t.Errorf("it has its turn: %t, %v", ok, err)
	}
	chunks.Release(maxChunkBytes)
	if !taken() {
		t.Error("bytes were given to a subscriber that has ended")
	}
}
