package consume

import (
	"math/rand/v2"
	"testing"
	"time"
)

// simRelay is a relay as the numbering sees it: what it holds, in one numbering at a time.
type simRelay struct {
	rng       *rand.Rand
	numbering int      // counts restarts
	head      int64    // newest
	holes     bool     // leaves numbers out
	inclusive bool     // sends the cursor's own frame too
	announce  bool     // says FutureCursor
	frames    []simRow // of the present numbering, ascending
}

type simRow struct {
	numbering int
	seq       int64
}

func (r *simRelay) emit() {
	r.head++
	if r.holes && r.rng.IntN(4) == 0 {
		r.head += r.rng.Int64N(5)
	}
	r.frames = append(r.frames, simRow{r.numbering, r.head})
}

// from returns what a connection gets at once; live frames follow by emit.
func (r *simRelay) from(cursor int64, has bool) (rows []simRow, future bool) {
	if !has {
		return nil, false
	}
	if cursor > r.head && r.announce {
		return nil, true
	}
	for _, row := range r.frames {
		if row.seq > cursor || r.inclusive && row.seq == cursor {
			rows = append(rows, row)
		}
	}
	return rows, false
}

// TestNumberingRandom lets random relays restart, lose their window and break connections, and holds what
// is handed over against what they sent.
func TestNumberingRandom(t *testing.T) {
	for seed := range uint64(400) {
		runNumbering(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// simRun is one run: the relay, the numbering, and what came of them.
type simRun struct {
	t         *testing.T
	rng       *rand.Rand
	r         *simRelay
	n         numbering
	now       time.Time
	got       []simRow // what was handed over, by the relay's own names
	lastEpoch uint32
	lastSeq   int64
	gaps      map[int]bool    // index into got before which a gap is told
	lost      map[simRow]bool // trimmed away before we could ask for it
}

func runNumbering(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	s := &simRun{
		t: t, rng: rng,
		r:    &simRelay{rng: rng, head: rng.Int64N(5000), holes: rng.IntN(2) == 0, inclusive: rng.IntN(2) == 0, announce: rng.IntN(2) == 0},
		n:    numbering{patience: 5 * time.Minute},
		now:  time.Unix(1000, 0),
		gaps: map[int]bool{}, lost: map[simRow]bool{},
	}
	for range 20 + rng.IntN(50) {
		s.r.emit()
	}
	for range 60 {
		s.connect()
		s.pass()
		if t.Failed() {
			return
		}
	}
	checkNumbering(t, s.r, s.got, s.gaps, s.lost)
}

// connect makes one connection and lives it to its end.
func (s *simRun) connect() {
	cursor, has := s.n.next()
	rows, future := s.r.from(cursor, has)
	s.n.opened()
	if future {
		s.n.futureCursor(s.now)
		return
	}
	recheck := time.Time{}
	arm := func() {
		if d, ok := s.n.recheckIn(s.now); ok {
			recheck = s.now.Add(d)
		}
	}
	arm()
	for range 1 + s.rng.IntN(200) {
		if len(rows) == 0 {
			s.r.emit()
			rows = s.r.frames[len(s.r.frames)-1:]
			s.now = s.now.Add(time.Duration(s.rng.Int64N(int64(10 * time.Second))))
		}
		if !recheck.IsZero() && s.now.After(recheck) && s.n.suspect.on {
			return
		}
		row := rows[0]
		rows = rows[1:]
		v := s.n.frame(s.now, row.seq, s.n.climbs(row.seq) && row.numbering != s.got[len(s.got)-1].numbering)
		if v.began {
			arm()
		}
		switch v.verdict {
		case resume, newEpoch:
			return
		case deliver:
			s.take(row, v.gap)
		}
	}
}

// take takes a frame that is handed over.
func (s *simRun) take(row simRow, gap *Gap) {
	if s.n.epoch == s.lastEpoch && row.seq <= s.lastSeq {
		s.t.Errorf("handed over %d/%d after %d/%d", s.n.epoch, row.seq, s.lastEpoch, s.lastSeq)
	}
	if s.n.epoch != s.lastEpoch && (gap == nil || gap.FromEpoch != s.lastEpoch || gap.From != s.lastSeq) {
		s.t.Errorf("epoch %d begins with gap %+v", s.n.epoch, gap)
	}
	if gap != nil {
		s.gaps[len(s.got)] = true
	}
	s.lastEpoch, s.lastSeq = s.n.epoch, row.seq
	s.got = append(s.got, row)
}

// pass lets time pass between connections: frames come, windows move on, the numbering may restart far below.
func (s *simRun) pass() {
	r := s.r
	s.now = s.now.Add(time.Duration(s.rng.Int64N(int64(30 * time.Second))))
	for range s.rng.IntN(20) {
		r.emit()
	}
	if s.rng.IntN(10) == 0 && len(r.frames) > 50 {
		for _, row := range r.frames[:len(r.frames)-5] {
			s.lost[row] = true
		}
		r.frames = r.frames[len(r.frames)-5:]
	}
	if s.rng.IntN(15) == 0 && r.head > 4000 {
		for _, row := range r.frames {
			s.lost[row] = true
		}
		r.numbering++
		r.head, r.frames = 0, nil
	}
}

// checkNumbering finds the frames that came between two handed over and were not: they must have been
// lost at the relay, and a gap be told.
func checkNumbering(t *testing.T, r *simRelay, got []simRow, gaps map[int]bool, lost map[simRow]bool) {
	t.Helper()
	seen := map[simRow]bool{}
	for i, row := range got {
		if seen[row] {
			t.Errorf("handed over twice: %+v", row)
			return
		}
		seen[row] = true
		if i > 0 && row.numbering != got[i-1].numbering && !gaps[i] {
			t.Errorf("no gap told between numberings, before %+v", row)
		}
	}
	if len(got) == 0 {
		return
	}
	for row := range lost {
		if seen[row] || row.numbering != got[0].numbering && !inNumbering(got, row.numbering) {
			continue
		}
		// The neighbours of row among those handed over must have a gap between them.
		for i := 1; i < len(got); i++ {
			a, b := got[i-1], got[i]
			if a.numbering == row.numbering && b.numbering == row.numbering && a.seq < row.seq && row.seq < b.seq && !gaps[i] {
				t.Errorf("%+v was lost between %+v and %+v and no gap told", row, a, b)
				return
			}
		}
	}
	// What the relay still holds below the newest handed over must have been handed over, from the first on.
	newest := got[len(got)-1]
	first := int64(0)
	for _, row := range got {
		if row.numbering == newest.numbering {
			first = row.seq
			break
		}
	}
	for _, row := range r.frames {
		if row.numbering == newest.numbering && row.seq > first && row.seq < newest.seq && !seen[row] {
			t.Errorf("%+v was not handed over, though %+v was", row, newest)
			return
		}
	}
}

func inNumbering(rows []simRow, numbering int) bool {
	for _, row := range rows {
		if row.numbering == numbering {
			return true
		}
	}
	return false
}

// TestNumberingOneConnection sees nothing but low numbers on one connection, for longer than the patience:
// only a new one can show that the relay does not have its old numbering back.
func TestNumberingOneConnection(t *testing.T) {
	n := numbering{patience: time.Minute, last: 10, have: true}
	n.opened()
	now := time.Unix(1000, 0)
	if n.climbs(10) {
		t.Error("climbs to the last one from nowhere: an inclusive cursor does that")
	}
	for seq := range int64(5) {
		if r := n.frame(now, 1+seq, false); r.verdict != repeat || r.began != (seq == 0) {
			t.Fatalf("%d: %+v", seq, r)
		}
		now = now.Add(time.Minute)
	}
	if d, ok := n.recheckIn(now); d != time.Minute/rechecks || !ok {
		t.Errorf("recheck in %v, %v", d, ok)
	}
	if !n.climbs(10) || n.climbs(9) {
		t.Error("does not climb to the last one from below")
	}
	if r := n.frame(now, 10, false); r.verdict != repeat || !r.ended || n.suspect.on {
		t.Errorf("at the last one: %+v", r)
	}
	if _, ok := n.recheckIn(now); ok {
		t.Error("recheck without a suspicion")
	}
	if n.climbs(10) {
		t.Error("climbs to the last one twice")
	}
}

// TestNumberingExtremes has a relay count as far as numbers go.
func TestNumberingExtremes(t *testing.T) {
	const most = 1<<63 - 1
	n := numbering{patience: time.Minute, last: 10, have: true}
	n.opened()
	now := time.Unix(1000, 0)
	if r := n.frame(now, most, false); r.verdict != deliver || r.gap == nil || r.gap.Frames() != most-11 {
		t.Fatalf("%+v %+v", r, r.gap)
	}
	if r := n.frame(now, most, false); r.verdict != repeat || n.suspect.on {
		t.Fatalf("%+v", r)
	}
	if r := n.frame(now, 11, false); r.verdict != repeat || !r.began {
		t.Fatalf("%+v", r)
	}
	now = now.Add(2 * time.Minute)
	n.opened()
	if r := n.frame(now, 12, false); r.verdict != newEpoch {
		t.Fatalf("%+v", r)
	}
	if cursor, has := n.next(); cursor != 10 || !has {
		t.Fatalf("asks for %d, %v", cursor, has)
	}
	n.opened()
	if r := n.frame(now, 11, false); r.verdict != deliver || *r.gap != (Gap{0, most, 1, 11}) {
		t.Fatalf("%+v %+v", r, r.gap)
	}
}
