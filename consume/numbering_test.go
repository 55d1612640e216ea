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

// TestNumberingRandom lets random relays restart, lose their window, break connections and send old
// frames in between. It compares what is handed over with what they sent.
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
	gaps      map[int]bool    // index into got before which a gap is reported
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
		s.beforeConnect()
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
		if !recheck.IsZero() && s.now.After(recheck) && s.n.reset.on {
			return
		}
		row := rows[0]
		if old := row.seq - 1000; old > 0 && s.n.have && old < s.n.last && s.rng.IntN(50) == 0 {
			row.seq = old // an old number comes before the row
		} else {
			rows = rows[1:]
		}
		suspected, state := s.n.reset.on, s.n.state
		verdict, gap := s.n.frame(s.now, row.seq, s.n.catchesUp(row.seq) && row.numbering != s.got[len(s.got)-1].numbering)
		if !suspected && s.n.reset.on {
			arm()
		}
		if verdict == resume && state == connFollows {
			s.t.Errorf("connection given up at %+v, though it followed", row)
		}
		switch verdict {
		case resume, newEpoch:
			return
		case deliver:
			s.take(row, gap)
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

// beforeConnect lets time pass between connections: frames come, windows move on, the numbering may
// restart far below.
func (s *simRun) beforeConnect() {
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

// checkNumbering finds the frames that came between two handed over and were not. They must have
// been lost at the relay, and a gap be reported.
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
			t.Errorf("no gap reported between numberings, before %+v", row)
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
				t.Errorf("%+v was lost between %+v and %+v and no gap reported", row, a, b)
				return
			}
		}
	}
	// What the relay still holds below the newest handed over must have been handed over, from the
	// first on.
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

// TestDecide is the table of the numbering's policy.
func TestDecide(t *testing.T) {
	follows := func(o observation) observation { o.conn = connFollows; return o }
	unsure := func(o observation) observation { o.conn = connUnsure; return o }
	suspect := decision{verdict: repeat, conn: connUnsure, suspect: true}
	for _, tt := range []struct {
		name string
		o    observation
		want decision
	}{
		{"the first of all", observation{first: true, step: 500}, decision{verdict: deliver, conn: connFollows}},
		{"the next, asked", observation{step: 1}, decision{verdict: deliver, conn: connFollows}},
		{"the next, unsure", unsure(observation{step: 1}), decision{verdict: deliver, conn: connFollows}},
		{"the next, following", follows(observation{step: 1}), decision{verdict: deliver, conn: connFollows}},
		{"the last again, asked", observation{}, decision{verdict: repeat, conn: connFollows}},
		{"the last again, unsure", unsure(observation{below: 9}), decision{verdict: repeat, conn: connFollows}},
		{"the last again, following", follows(observation{}), decision{verdict: repeat, conn: connFollows}},
		{"the last number, another event", unsure(observation{below: 9, other: true}), decision{verdict: newEpoch}},
		{"a jump, asked: the relay lost some", observation{step: 5}, decision{verdict: deliver, conn: connFollows, gap: true}},
		{"a jump, following: numbers left out", follows(observation{step: 5}), decision{verdict: deliver, conn: connFollows}},
		{"a jump behind a single old frame", follows(observation{step: 5, below: 1}), decision{verdict: deliver, conn: connFollows}},
		{"a jump, unsure", unsure(observation{step: 2}), decision{verdict: resume}},
		{"a jump, unsure, for the last time", unsure(observation{step: 2, resumes: maxResumes - 1}), decision{verdict: resume}},
		{"a jump, unsure, too often", unsure(observation{step: 2, resumes: maxResumes}), decision{verdict: deliver, conn: connFollows, gap: true}},
		{"an old frame, asked", observation{step: -1}, suspect},
		{"an old frame, unsure", unsure(observation{step: -1, below: 1}), suspect},
		{"a single old frame, following", follows(observation{step: -100_000}), decision{verdict: repeat, conn: connFollows}},
		{"a second old frame, following", follows(observation{step: -100_000, below: 1}), suspect},
		{"an old frame, for the patience", observation{step: -1, below: 7, expired: true}, decision{verdict: newEpoch}},
		{"a higher one after the patience", observation{step: 1, below: 7, expired: true}, decision{verdict: deliver, conn: connFollows}},
	} {
		if got := decide(tt.o); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// steps feeds frames to n, and returns the last verdict and gap.
func steps(n *numbering, now time.Time, seqs ...int64) (v verdict, gap *Gap) {
	for _, seq := range seqs {
		v, gap = n.frame(now, seq, false)
	}
	return v, gap
}

// TestOldFramesAmongGoodOnes mixes single old frames with good ones that leave numbers out: no
// connection is given up.
func TestOldFramesAmongGoodOnes(t *testing.T) {
	n := numbering{patience: time.Minute, last: 1_000_000, have: true}
	n.next()
	n.opened()
	now := time.Unix(1000, 0)
	for i := range int64(1000) {
		seq := n.last + 1
		if i%2 == 1 {
			seq++ // leaves a number out
		}
		if v, gap := n.frame(now, seq, false); v != deliver || gap != nil {
			t.Fatalf("frame %d: %v, gap %v", i, v, gap)
		}
		if v, _ := n.frame(now, seq-100_000, false); v != repeat || n.reset.on {
			t.Fatalf("old frame %d: %v, reset suspected: %v", i, v, n.reset.on)
		}
		if _, ok := n.recheckIn(now); ok {
			t.Fatalf("old frame %d has the relay dialled anew", i)
		}
	}
}

// TestResumesCountInARow leaves frames out more often than is allowed in a row, with good frames
// in between: each time they are asked for again.
func TestResumesCountInARow(t *testing.T) {
	n := numbering{patience: time.Minute, last: 100, have: true}
	now := time.Unix(1000, 0)
	for i := range 3 * maxResumes {
		n.next()
		n.opened()
		if v, _ := steps(&n, now, n.last+1, 5, 6, n.last+4); v != resume {
			t.Fatalf("hole %d: %v, want resume", i, v)
		}
	}
	for range maxResumes - 1 { // in a row
		n.next()
		n.opened()
		if v, _ := steps(&n, now, 5, n.last+2); v != resume {
			t.Fatalf("%v, want resume", v)
		}
	}
	n.next()
	n.opened()
	if v, gap := steps(&n, now, 5, n.last+2); v != deliver || gap == nil {
		t.Fatalf("%v, gap %v: the relay does not have them", v, gap)
	}
}

// TestContradictedFutureCursor has a relay call the cursor one of the future among good frames.
func TestContradictedFutureCursor(t *testing.T) {
	n := numbering{patience: time.Minute, last: 10, have: true}
	now := time.Unix(1000, 0)
	n.next()
	n.opened()
	n.frame(now, 11, false)
	n.futureCursor(now)
	if cursor, has := n.next(); !has || cursor != 11 || n.reset.on {
		t.Errorf("next connection asks for %d, %v; reset suspected: %v", cursor, has, n.reset.on)
	}
	n.opened()
	n.futureCursor(now)
	if v, gap := n.frame(now, 15, false); v != resume || gap != nil {
		t.Errorf("live behind the error: %v, gap %v", v, gap)
	}
	if cursor, has := n.next(); !has || cursor != 11 || n.reset.on {
		t.Errorf("next connection asks for %d, %v; reset suspected: %v", cursor, has, n.reset.on)
	}
}

// TestNumberingOneConnection sees nothing but low numbers on one connection, for longer than the
// patience. Only a new one can show that the relay does not have its old numbering back.
func TestNumberingOneConnection(t *testing.T) {
	n := numbering{patience: time.Minute, last: 10, have: true}
	n.opened()
	now := time.Unix(1000, 0)
	if n.catchesUp(10) {
		t.Error("catches up with the last one from nowhere: an inclusive cursor does that")
	}
	for seq := range int64(5) {
		if v, _ := n.frame(now, 1+seq, false); v != repeat || !n.reset.on {
			t.Fatalf("%d: %v, reset suspected: %v", seq, v, n.reset.on)
		}
		now = now.Add(time.Minute)
	}
	if d, ok := n.recheckIn(now); d != time.Minute/rechecks || !ok {
		t.Errorf("recheck in %v, %v", d, ok)
	}
	if !n.catchesUp(10) || n.catchesUp(9) {
		t.Error("does not catch up with the last one from below")
	}
	if v, _ := n.frame(now, 10, false); v != repeat || n.reset.on {
		t.Errorf("at the last one: %v, reset suspected: %v", v, n.reset.on)
	}
	if _, ok := n.recheckIn(now); ok {
		t.Error("recheck without a suspected reset")
	}
	if n.catchesUp(10) {
		t.Error("catches up with the last one twice")
	}
}

// TestNumberingExtremes has a relay count as far as numbers go.
func TestNumberingExtremes(t *testing.T) {
	const most = 1<<63 - 1
	n := numbering{patience: time.Minute, last: 10, have: true}
	n.opened()
	now := time.Unix(1000, 0)
	if v, gap := n.frame(now, most, false); v != deliver || gap == nil || gap.Frames() != most-11 {
		t.Fatalf("%v %+v", v, gap)
	}
	if v, _ := n.frame(now, most, false); v != repeat || n.reset.on {
		t.Fatalf("%v, reset suspected: %v", v, n.reset.on)
	}
	if v, _ := steps(&n, now, 11, 12); v != repeat || !n.reset.on {
		t.Fatalf("%v, reset suspected: %v", v, n.reset.on)
	}
	now = now.Add(2 * time.Minute)
	n.next()
	n.opened()
	if v, _ := n.frame(now, 12, false); v != newEpoch {
		t.Fatalf("%v", v)
	}
	if cursor, has := n.next(); cursor != 10 || !has {
		t.Fatalf("asks for %d, %v", cursor, has)
	}
	n.opened()
	if v, gap := n.frame(now, 11, false); v != deliver || *gap != (Gap{0, most, 1, 11}) {
		t.Fatalf("%v %+v", v, gap)
	}
}
