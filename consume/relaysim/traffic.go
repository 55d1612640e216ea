package relaysim

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// deletablePerCollection bounds how many records are remembered for later deletes, by collection.
const deletablePerCollection = 256

// signedFrames is how many frames a world is continued by at once.
const signedFrames = 256

// deletableRecord is a record that was created and can be deleted.
type deletableRecord struct {
	did  int
	rkey tid
}

// traffic makes an endless stream out of a set of templates. It is not safe for concurrent use.
//
// The first cycle through the templates sends what they were made of, under the numbering and the
// time of now. In later cycles frames keep their records and change their envelopes. rev and the
// record keys of creates are fresh and rising; the DID is drawn from the population. A #sync
// repeats the commit that it was made with: another would be one that nobody has seen. A frame that
// deletes a record deletes one that an earlier frame has created. If keys are kept they are those
// that a frame was made with. With a world there are no later cycles.
type traffic struct {
	cfg       Config
	templates []*template

	clock      *clock
	population *population
	rng        *rand.Rand
	churn      *churn
	faulty     faultyMix
	world      *world // whose next frames follow, instead of a next cycle; nil: none
	again      again
	deletable  map[string][]deletableRecord
	next       int
	cycle      int
}

// done says that the stream has ended.
func (t *traffic) done() bool { return t.cfg.Once && t.cycle > 0 }

// append adds the next frame to b, under seq unless frames are sent verbatim, with its truth. It
// must not be called once the traffic is done.
func (t *traffic) append(b *batch, epoch uint32, seq int64) {
	t.faulty.injected = ""
	t.frame().send(b, epoch, seq)
}

// frame returns the next frame, which is good until the next call.
func (t *traffic) frame() *sentFrame {
	if s := t.again.take(); s != nil {
		return s
	}
	if t.churn.isDue() {
		return t.again.keep(t.churn.template())
	}
	if t.faulty.isDue() {
		if s := t.faultyFrame(); s != nil {
			return s
		}
	}
	s := t.again.keep(t.templates[t.next])
	if !t.cfg.verbatim() {
		s.v.time = append(s.v.time[:0], t.clock.tick()...)
		again := t.cycle > 0 || t.cfg.Capture != "" // captured ones were sent before
		if again && !s.template.ofSync {
			t.rewrite(s)
		}
	}
	t.faulty.note(s.template)
	t.advance()
	return s
}

// faultyFrame returns the faulty commit that is due, before the next frame or instead of it; nil:
// the next frame must be sent.
func (t *traffic) faultyFrame() *sentFrame {
	at := t.clock.tick()
	tmpl, replaces := t.faulty.inject(t.templates[t.next], time.UnixMicro(t.clock.last), t.world.cfg.truth)
	if replaces {
		t.advance()
	}
	if tmpl == nil {
		return nil
	}
	s := &sentFrame{tmpl, tmpl.original}
	s.v.time = at
	return s
}

// advance goes on to the next template.
func (t *traffic) advance() {
	if t.next++; t.next < len(t.templates) {
		return
	}
	t.next = 0
	if t.world == nil {
		t.cycle++
		return
	}
	var err error
	if t.templates, err = t.world.frames(signedFrames); err != nil {
		panic("relaysim: " + err.Error()) // it went well so far
	}
	t.dropSyncs()
}

// dropSyncs takes the events of #sync frames out of the truth, unless it has them.
func (t *traffic) dropSyncs() {
	for _, tmpl := range t.templates {
		if tmpl.ofSync && !t.cfg.TruthSync {
			tmpl.truth = pattern{}
		}
	}
}

// send adds the frame to b, under another number unless it was captured and is sent verbatim.
func (s *sentFrame) send(b *batch, epoch uint32, seq int64) {
	v := s.v
	v.epoch = epoch
	if raw := s.template.raw; raw != nil {
		b.add(v.seq, false, raw)
	} else {
		v.seq = seq
		b.scratch = s.template.frame.append(b.scratch[:0], &v)
		b.add(seq, false, b.scratch)
	}
	b.truth = s.template.truth.append(b.truth, &v)
}

// rewrite chooses a fresh DID, rev and record keys.
func (t *traffic) rewrite(s *sentFrame) {
	account := t.population.draw()
	for i, use := range s.template.rkeys {
		switch {
		case t.cfg.KeepKeys:
		case use.action == "create":
			s.v.rkeys[i] = t.clock.tid()
			t.deletable[use.collection] = KeepSome(t.rng, t.deletable[use.collection], deletablePerCollection, deletableRecord{account, s.v.rkeys[i]})
		case use.action == "delete":
			if list := t.deletable[use.collection]; s.template.ops == 1 && len(list) > 0 {
				n := t.rng.IntN(len(list))
				account, s.v.rkeys[i] = list[n].did, list[n].rkey
				list[n] = list[len(list)-1]
				t.deletable[use.collection] = list[:len(list)-1]
			}
		}
	}
	s.v.did = t.population.appendDID(s.v.did[:0], account)
	s.v.rev = t.clock.tid()
}

// batch is a run of messages on their way into the window.
type batch struct {
	wire    []byte // websocket frames, ready to send
	entries []entry
	truth   []byte
	scratch []byte // a payload
}

// entry is one message: its number and where it ends.
type entry struct {
	seq     int64 // 0: it has no number of its own
	end     int   // one past its last byte
	payload int   // bytes of it
}

func (b *batch) reset() {
	b.wire, b.entries, b.truth = b.wire[:0], b.entries[:0], b.truth[:0]
}

// add appends a message of payload. It keeps nothing of payload.
func (b *batch) add(seq int64, text bool, payload []byte) {
	b.wire = appendWireHeader(b.wire, text, len(payload))
	b.wire = append(b.wire, payload...)
	b.entries = append(b.entries, entry{seq: seq, end: len(b.wire), payload: len(payload)})
}

// appendWireHeader appends the header of an unmasked, final websocket frame (RFC 6455, section
// 5.2).
func appendWireHeader(dst []byte, text bool, payload int) []byte {
	opcode := byte(0x82)
	if text {
		opcode = 0x81
	}
	switch {
	case payload < 126:
		return append(dst, opcode, byte(payload))
	case payload <= 0xffff:
		return binary.BigEndian.AppendUint16(append(dst, opcode, 126), uint16(payload))
	}
	return binary.BigEndian.AppendUint64(append(dst, opcode, 127), uint64(payload))
}
