package ingest

import (
	"fmt"
	"testing"

	"millrace/replay"
	"millrace/translate"
)

// TestFlush: a block without events moves the position once, when nothing else does in time or a
// gap follows it; and never after a later block.
func TestFlush(t *testing.T) {
	const event, empty, gap = 'e', '-', 'g'
	for _, tc := range []struct {
		flushes []string // the jobs of each, by kind; "+": all must be written
		want    string   // seqs of the blocks, by Append
	}{
		{[]string{"e"}, "[[1]]"},
		{[]string{"-"}, "[]"},
		{[]string{"-+"}, "[[1]]"},
		{[]string{"-", "+", "+"}, "[[1]]"},
		{[]string{"-", "-", "+"}, "[[2]]"},
		{[]string{"-e", "+"}, "[[2]]"},
		{[]string{"-", "e", "+"}, "[[2]]"},
		{[]string{"e-", "+"}, "[[1] [2]]"},
		{[]string{"-g", "+"}, "[[1 2]]"},
		{[]string{"g-g+"}, "[[1 2 3]]"},
		{[]string{"-", "g", "-", "e", "+"}, "[[1 2] [4]]"},
		{[]string{"ee-+"}, "[[1 2 3]]"},
	} {
		log := &fakeLog{}
		p := newPipeline(t, Config{Log: log, InFlightBytes: 8 << 20})
		c := &committer{p: p}
		seq := int64(0)
		for _, jobs := range tc.flushes {
			all := false
			for _, kind := range jobs {
				if kind == '+' {
					all = true
					continue
				}
				seq++
				in := replay.Input{Epoch: 1, FirstSeq: seq, LastSeq: seq, Batch: &translate.Batch{}}
				b, err := log.Seal(in)
				if err != nil {
					t.Fatal(err)
				}
				j := newJob()
				j.blocks, j.done = []*replay.Block{b}, make(chan struct{})
				switch kind {
				case event:
					j.batch.Events = make([]translate.Event, 1)
				case gap:
					j.gap = &replay.Gap{}
				case empty:
				}
				c.jobs = append(c.jobs, j)
			}
			if err := c.flush(all); err != nil {
				t.Fatal(err)
			}
		}
		got := [][]int64{}
		for _, group := range log.appends {
			var seqs []int64
			for _, s := range group {
				seqs = append(seqs, s.last)
			}
			got = append(got, seqs)
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%q: appended %v, want %s", tc.flushes, got, tc.want)
		}
	}
}

// TestGather: jobs that are sealed are committed together, up to a bound, and one that is not yet
// comes first next time.
func TestGather(t *testing.T) {
	for _, tc := range []struct {
		sealed, waiting int
		want            int
	}{
		{1, 0, 1}, {2, 0, 2}, {2, 1, 2}, {maxGroup, 0, maxGroup}, {maxGroup + 1, 0, maxGroup},
	} {
		p := newPipeline(t, Config{Log: &fakeLog{}, InFlightBytes: 8 << 20})
		p.commits = make(chan *job, 2*maxGroup)
		var jobs []*job
		for i := range tc.sealed + tc.waiting {
			j := newJob()
			j.sealed = make(chan error, 1)
			if i < tc.sealed {
				j.sealed <- nil
			}
			jobs = append(jobs, j)
			if i > 0 {
				p.commits <- j
			}
		}
		c := &committer{p: p}
		if err := c.gather(t.Context(), jobs[0]); err != nil {
			t.Fatal(err)
		}
		if len(c.jobs) != tc.want || tc.waiting > 0 && c.next != jobs[tc.sealed] {
			t.Errorf("%d sealed and %d waiting: gathered %d, want %d", tc.sealed, tc.waiting, len(c.jobs), tc.want)
		}
	}
}
