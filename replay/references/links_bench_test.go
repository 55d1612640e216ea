package references

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"millrace/replay/internal/postings"
)

// linkStream makes changes as the network has them: a new subject for one link of 4.9, else one
// that was linked to lately. Few accounts make most links. 4 % of the links go again.
type linkStream struct {
	rng      *rand.Rand
	accounts *rand.Zipf
	next     [8]uint64 // number that each sequence gives next
	subjects []uint64  // of late links; a ring
	records  []Change  // late creates; a ring
	edges    uint64
	seq      int64
	rev      uint64
}

const lateLinks = 1 << 20

func newLinkStream(accounts uint64) *linkStream {
	l := &linkStream{rng: rand.New(rand.NewPCG(1, 1))}
	l.accounts = rand.NewZipf(l.rng, 1.1, 200, accounts-1)
	for i := range l.next {
		l.next[i] = accounts + 1
	}
	return l
}

// uid returns a UID of a sequence; an interner has one of eight workers for an account.
func (l *linkStream) uid(worker, n uint64) uint64 { return (worker*1987+77)%(1<<14)<<50 | n }

func (l *linkStream) fresh(worker uint64) uint64 {
	l.next[worker]++
	return l.uid(worker, l.next[worker])
}

func (l *linkStream) subject() (subject uint64) {
	if n := uint64(len(l.subjects)); n == 0 || l.rng.Float64() < 1/4.9 {
		subject = l.fresh(l.rng.Uint64N(8))
	} else {
		subject = l.subjects[l.rng.Uint64N(n)]
	}
	if len(l.subjects) < lateLinks {
		l.subjects = append(l.subjects, subject)
	} else {
		l.subjects[l.rng.IntN(lateLinks)] = subject
	}
	return subject
}

// batch makes n changes.
func (l *linkStream) batch(n int) *Batch {
	b := new(Batch)
	for range n {
		l.seq++
		l.rev++
		if late := len(l.records); late > 1000 && l.rng.IntN(25) == 0 {
			c := l.records[l.rng.IntN(late)]
			b.Changes = append(b.Changes, Change{Operation: Delete, Seq: l.seq, Rev: l.rev, Account: c.Account, Record: c.Record})
			continue
		}
		who := l.accounts.Uint64() + 1
		worker := who * 0x9e3779b97f4a7c15 >> 61
		c := Change{Operation: Create, Seq: l.seq, Rev: l.rev, Account: l.uid(worker, who), Record: l.fresh(worker), New: true}
		refs := 1
		if l.rng.IntN(100) < 14 {
			refs = 2
		}
		for i := range refs {
			subject := l.subject()
			c.References = append(c.References, Reference{Path: uint32(1 + i), Subject: subject, Authority: l.uid(subject>>50%8, 1+l.rng.Uint64N(1000))})
		}
		l.edges += uint64(refs)
		if c2 := (Change{Account: c.Account, Record: c.Record}); len(l.records) < lateLinks {
			l.records = append(l.records, c2)
		} else {
			l.records[l.rng.IntN(lateLinks)] = c2
		}
		b.Changes = append(b.Changes, c)
	}
	b.Position = Position{Epoch: 1, Seq: l.seq}
	return b
}

// BenchmarkLinks applies batches of 1,000 changes, with and without links. It reports what a link
// takes on disk, and what all of the table takes for each record that is alive.
//
//	go test -run - -bench Links/links=false -benchtime 21000x ./replay/references # 20 M records
//	go test -run - -bench Links -benchtime 17500x ./replay/references # 20 M links
func BenchmarkLinks(b *testing.B) {
	for _, mode := range []Links{LinksOff, LinksOn} {
		b.Run(fmt.Sprintf("links=%t", mode == LinksOn), func(b *testing.B) {
			s, err := Open(Config{Dir: b.TempDir(), PebbleBytes: 128 << 20, Links: mode})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if err := s.Begin("bench", Position{Epoch: 1}); err != nil {
				b.Fatal(err)
			}
			stream := newLinkStream(1_000_000)
			begun := time.Now()
			var making time.Duration
			for b.Loop() {
				from := time.Now()
				batch := stream.batch(1000)
				making += time.Since(from)
				batch.Since = s.Hydrated()
				if err := s.Hydrate(context.Background(), batch); err != nil {
					b.Fatal(err)
				}
				if err := s.Apply(batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(stream.edges)/(time.Since(begun)-making).Seconds(), "links/s")
			db := s.db.Pebble()
			if err := db.Compact(context.Background(), []byte{0}, []byte{0xff}, false); err != nil {
				b.Fatal(err)
			}
			size := func(r postings.Range) float64 {
				n, err := db.EstimateDiskUsage([]byte{byte(r)}, []byte{byte(r) + 1})
				if err != nil {
					b.Fatal(err)
				}
				return float64(n) / float64(stream.edges)
			}
			records := 0
			if _, err := s.Rows(context.Background(), func(*Row) error { records++; return nil }); err != nil {
				b.Fatal(err)
			}
			all, _ := db.EstimateDiskUsage([]byte{0}, []byte{0xff})
			b.ReportMetric(float64(all)/float64(records), "bytes/record")
			b.ReportMetric(float64(records), "records")
			rows, _ := db.EstimateDiskUsage(rangeRecord.start(), rangeRecord.end())
			b.ReportMetric(float64(rows)/float64(stream.edges), "row-bytes/link")
			b.ReportMetric(size(postings.RangeMembers), "chunk-bytes/link")
			b.ReportMetric(size(postings.RangeHead), "head-bytes/link")
			b.ReportMetric(size(postings.RangeAccount), "account-bytes/link")
		})
	}
}
