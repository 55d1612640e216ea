package relaysim

import "bytes"

// Message is one message of the stream.
type Message struct {
	Payload []byte
	Fault   string // that it has; "": none
}

// Take returns the next n messages. It is for tests without a connection, instead of Serve.
func (r *Relay) Take(n int) []Message {
	var out []Message
	p, b := r.producer, &r.producer.batch
	for range n {
		b.reset()
		p.one()
		payload := b.wire[len(b.wire)-b.entries[0].payload:]
		out = append(out, Message{Payload: bytes.Clone(payload), Fault: p.traffic.faulty.injected})
	}
	return out
}
