package public

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
)

// sessions is what a Server has to end when it stops.
type sessions struct {
	running sync.WaitGroup // the goroutines: two for each subscriber, and the waker's
	count   atomic.Int64   // len(subscribers)

	mu          sync.Mutex
	subscribers map[*subscriber]bool // whether its connection is set
	servers     []*http.Server
	closing     bool
}

// addServer reports whether hs may serve.
func (s *sessions) addServer(hs *http.Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.servers = append(s.servers, hs)
	}
	return !s.closing
}

// register makes room for sub among maxConnections, unless the server is full or closing.
func (s *sessions) register(sub *subscriber, maxConnections int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return unavailable(rejectShutdown, "shutting down")
	case len(s.subscribers) >= maxConnections:
		return unavailable(rejectMaximum, fmt.Sprintf("too many subscribers: there are %d, the most that this server takes", maxConnections))
	}
	s.subscribers[sub] = false
	s.count.Store(int64(len(s.subscribers)))
	s.running.Add(1)
	return nil
}

// begin notes that sub's connection is set, and reports whether the server is closing.
func (s *sessions) begin(sub *subscriber) (closing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers[sub] = true
	return s.closing
}

// drop undoes register, but for the count of those that run.
func (s *sessions) drop(sub *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subscribers, sub)
	s.count.Store(int64(len(s.subscribers)))
}

// close lets nothing begin from now on, and returns what has begun.
func (s *sessions) close() (subs []*subscriber, servers []*http.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for sub, begun := range s.subscribers {
		if begun {
			subs = append(subs, sub)
		}
	}
	return subs, s.servers
}

// isClosing reports whether close was called.
func (s *sessions) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// closeAll closes all subscribers' sockets.
func (s *sessions) closeAll() {
	subs, _ := s.close()
	for _, sub := range subs {
		sub.conn.Conn.Close()
	}
}
