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
		out = append(out, Message{Payload: bytes.Clone(wirePayload(b.wire)), Fault: p.traffic.faulty.injected})
	}
	return out
}

// wirePayload returns the payload of a frame that appendWireHeader began.
func wirePayload(wire []byte) []byte {
	switch wire[1] {
	case 126:
		return wire[4:]
	case 127:
		return wire[10:]
	}
	return wire[2:]
}
