package relaysim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"
)

// windowModel is a window beside a slice of all messages that it ever had.
type windowModel struct {
	t       *testing.T
	rng     *rand.Rand
	w       *window
	all     []windowMessage
	head    int64
	forgot  int // messages
	left    int // where the last reader left
	joined  int64
	readers []*windowReader
}

type windowMessage struct {
	seq  int64 // the highest so far
	wire []byte
}

type windowReader struct {
	c          *consumer
	at         int
	held, copy []byte // of the last take
}

const modelFrames, modelBytes = 300, 4 << 20

// size returns the bytes of the messages from one on.
func (m *windowModel) size(from int) (n int64) {
	for _, message := range m.all[from:] {
		n += int64(len(message.wire))
	}
	return n
}

// gone returns the highest seq that is no longer there.
func (m *windowModel) gone() int64 {
	if m.w.oldest == 0 {
		return 100
	}
	return m.all[m.w.oldest-1].seq
}

func (m *windowModel) publish() {
	var b batch
	for range 1 + m.rng.IntN(20) {
		n := 8 + m.rng.IntN(4000)
		if m.rng.IntN(40) == 0 {
			n = m.rng.IntN(3*chunkBytes/2) + 8
		}
		message := binary.BigEndian.AppendUint64(bytes.Repeat([]byte{byte(len(m.all))}, n-8), uint64(len(m.all)))
		seq := int64(0)
		if m.rng.IntN(10) > 0 {
			m.head += 1 + m.rng.Int64N(3)
			seq = m.head
		}
		m.all = append(m.all, windowMessage{m.head, message})
		b.wire = append(b.wire, message...)
		b.entries = append(b.entries, entry{seq: seq, end: len(b.wire)})
	}
	m.w.publish(&b)
	clear(b.wire)
	oldest := int(m.w.oldest)
	if held := m.size(oldest); held > modelBytes || len(m.all)-oldest > modelFrames {
		m.t.Fatalf("%d messages of %d bytes are held", len(m.all)-oldest, held)
	}
	if must := max(len(m.all)-modelFrames, m.forgot); oldest > must && m.size(oldest-1) < modelBytes/5 {
		m.t.Fatalf("%d messages of %d bytes are held, and the one before is not", len(m.all)-oldest, m.size(oldest))
	}
}

func (m *windowModel) forget() {
	keep := m.rng.Int64N(modelFrames)
	want := int64(0)
	if oldest := int64(len(m.all)) - keep; oldest > m.w.oldest {
		want, m.forgot = m.all[oldest-1].seq, int(oldest)
	}
	if got := m.w.forget(keep); got != want {
		m.t.Fatalf("lost through %d, want %d", got, want)
	}
}

func (m *windowModel) join() {
	cursor, live := m.head-m.rng.Int64N(700)+5, m.rng.IntN(5) == 0
	c, outdated, future := m.w.join(cursor, live)
	m.joined++
	at := len(m.all)
	if !live {
		for at > int(m.w.oldest) && m.all[at-1].seq > cursor {
			at--
		}
	}
	if outdated != (!live && cursor < m.gone()) || future != (!live && cursor > m.head) || int(c.at.ord) != at {
		m.t.Fatalf("cursor %d, live %t, of %d to %d: begins at %d, want %d, outdated %t, future %t", cursor, live, m.gone(), m.head, c.at.ord, at, outdated, future)
	}
	m.readers = append(m.readers, &windowReader{c: c, at: at})
}

// take has a reader take what comes next.
func (m *windowModel) take() {
	r := m.readers[m.rng.IntN(len(m.readers))]
	if !bytes.Equal(r.held, r.copy) {
		m.t.Fatal("what a reader has taken was changed")
	}
	most := m.rng.IntN(100_000)
	wire, frames, more, err := r.c.take(most)
	r.held, r.copy = wire, bytes.Clone(wire)
	if late := r.at < int(m.w.oldest); late != errors.Is(err, errTooSlow) || (more == nil) == (!late && r.at == len(m.all)) {
		m.t.Fatalf("reader at %d of %d to %d: %d frames, more to wait for: %t, %v", r.at, m.w.oldest, len(m.all), frames, more != nil, err)
	}
	if frames == 0 {
		return
	}
	var want []byte
	for _, message := range m.all[r.at : r.at+frames] {
		want = append(want, message.wire...)
	}
	if !bytes.Equal(wire, want) || frames > 1 && len(wire) > most {
		m.t.Fatalf("reader at %d: %d bytes of %d frames are not those, or more than %d", r.at, len(wire), frames, most)
	}
	r.at += frames
}

func (m *windowModel) leave() {
	i := m.rng.IntN(len(m.readers))
	r := m.readers[i]
	r.c.leave()
	if m.readers = append(m.readers[:i], m.readers[i+1:]...); len(m.readers) == 0 {
		m.left = r.at
	}
	r.c.leave() // safe twice
}

func (m *windowModel) check() {
	n := m.rng.Int64N(20)
	newest := m.w.newest(n)
	want := m.all[max(m.w.oldest, int64(len(m.all))-n):]
	if len(newest) != len(want) {
		m.t.Fatalf("%d of the newest %d messages", len(newest), n)
	}
	for i := range want {
		if !bytes.Equal(newest[i], want[i].wire) {
			m.t.Fatalf("message %d of the newest %d is another", i, n)
		}
	}
	slowest := m.left
	for i, r := range m.readers {
		if i == 0 || r.at < slowest {
			slowest = r.at
		}
	}
	frames, size, joined := m.w.lead()
	if frames != int64(len(m.all)-slowest) || size != m.size(slowest) || joined != m.joined || m.w.head() != m.head {
		m.t.Fatalf("ahead of %d by %d frames of %d bytes, %d have joined, head %d; want %d, %d, %d, %d", slowest, frames, size, joined, m.w.head(),
			len(m.all)-slowest, m.size(slowest), m.joined, m.head)
	}
}

// TestWindowModel compares a window with a slice of messages, over random batches, readers and
// limits.
func TestWindowModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := &windowModel{t: t, rng: rand.New(rand.NewPCG(seed, 1)), w: newWindow(100, modelFrames, modelBytes), head: 100}
	m.publish()
	for range 1500 {
		switch n := m.rng.IntN(100); {
		case n < 15:
			m.publish()
		case n < 17:
			m.forget()
		case n < 27:
			m.join()
		case n < 35 && len(m.readers) > 0:
			m.leave()
		case len(m.readers) > 0:
			m.take()
		}
		m.check()
	}
}

// TestWindowEnds: a window that is closed gives what it has, and then why; end concerns those that
// are there only.
func TestWindowEnds(t *testing.T) {
	w := newWindow(0, modelFrames, modelBytes)
	w.publish(&batch{wire: []byte("one"), entries: []entry{{seq: 1, end: 3}}})
	c, _, _ := w.join(0, false)
	w.close(errRenumbering)
	if wire, frames, _, err := c.take(10); string(wire) != "one" || frames != 1 || err != nil {
		t.Errorf("%q, %v", wire, err)
	}
	if _, _, more, err := c.take(10); !errors.Is(err, errRenumbering) {
		t.Errorf("%v, %v", more, err)
	}
	w.reopen()
	_, _, more, err := c.take(10)
	if more == nil || err != nil {
		t.Errorf("%v, %v", more, err)
	}
	w.end(errTooSlow)
	<-more
	other, _, _ := w.join(0, false)
	if _, frames, _, err := other.take(10); frames != 1 || err != nil {
		t.Errorf("one that came later: %v", err)
	}
	if _, _, _, err := c.take(10); !errors.Is(err, errTooSlow) {
		t.Errorf("%v", err)
	}
}

// TestAllowed is the table of how many frames may be made when.
func TestAllowed(t *testing.T) {
	now := time.Unix(1e9, 0)
	const second = time.Second
	for name, tt := range map[string]struct {
		set    func(p *producer)
		frames int64
		wait   time.Duration
		due    time.Duration // after now, once the frames are spent
		burst  int64
	}{
		"half the window ahead": {func(*producer) {}, 150, 0, 0, 0},
		"at half the window":    {func(p *producer) { p.now.win.next = 150 }, 0, time.Minute, 0, 0},
		"near half the window":  {func(p *producer) { p.now.win.next = 149 }, 1, 0, 0, 0},
		"half the bytes ahead":  {func(p *producer) { p.now.win.wireBytes = modelBytes / 2 }, 0, time.Minute, 0, 0},
		"a batch at most":       {func(p *producer) { p.cfg.WindowFrames = 10_000 }, batchFrames, 0, 0, 0},
		"the last ones":         {func(p *producer) { p.cfg.Frames = 10; p.made.Store(8) }, 2, 0, 0, 0},
		"all are made":          {func(p *producer) { p.cfg.Frames = 10; p.made.Store(10) }, 0, time.Minute, 0, 0},
		"nobody has come":       {func(p *producer) { p.cfg.WaitForConsumer, p.due = true, now.Add(-second) }, 0, time.Minute, 0, 0},
		"somebody has come":     {func(p *producer) { p.cfg.WaitForConsumer = true; p.now.win.join(0, true) }, 150, 0, 0, 0},
		"somebody had come":     {func(p *producer) { p.cfg.WaitForConsumer, p.started = true, true }, 150, 0, 0, 0},
		"quiet":                 {func(p *producer) { p.stalled = now.Add(3 * second) }, 0, 3 * second, 3 * second, 0},
		"quiet until now":       {func(p *producer) { p.stalled = now }, 150, 0, 0, 0},
		"a burst":               {func(p *producer) { p.cfg.Rate, p.burst = 10, 7 }, 7, 0, 0, 0},
		"a burst of many":       {func(p *producer) { p.burst = 1000 }, batchFrames, 0, 0, 1000 - batchFrames},
		"one is due":            {func(p *producer) { p.cfg.Rate = 10 }, 1, 0, second / 10, 0},
		"some are due":          {func(p *producer) { p.cfg.Rate, p.due = 10, now.Add(-second/2) }, 6, 0, second / 10, 0},
		"none is due":           {func(p *producer) { p.cfg.Rate, p.due = 10, now.Add(second/20) }, 0, second / 20, second / 20, 0},
		"behind for long":       {func(p *producer) { p.cfg.Rate, p.due = 10, now.Add(-time.Hour) }, 11, 0, second / 10, 0},
	} {
		p := newProducer(Config{FirstSeq: 1, WindowFrames: modelFrames, WindowBytes: modelBytes, Logger: slog.New(slog.DiscardHandler)},
			&traffic{templates: []*template{{}}}, nil, nil)
		p.due = now
		tt.set(p)
		frames, wait := p.allowed(now)
		p.spend(frames)
		if frames != tt.frames || wait != tt.wait || !p.due.Equal(now.Add(tt.due)) || p.burst != tt.burst {
			t.Errorf("%s: %d frames, wait %v, due in %v, burst %d; want %+v", name, frames, wait, p.due.Sub(now), p.burst, tt)
		}
	}
}
