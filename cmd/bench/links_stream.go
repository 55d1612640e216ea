package main

import (
	"math/rand/v2"

	"millrace/consume/relaysim"
	"millrace/replay/references"
)

// linkStream makes changes as the network has them. Of most links the subject is one that was
// linked to lately, so few subjects have very many. Few accounts make most links, and 4 % of
// operations delete a record. Links of one source and one subject are a set.
type linkStream struct {
	rng      *rand.Rand
	accounts *rand.Zipf
	followed *rand.Zipf
	next     [linkWorkers]uint64 // number that each sequence of UIDs gives next
	subjects []linkSubject
	late     []uint32     // indexes of subjects that were linked to lately
	records  []linkRecord // late creates that are alive
	drawn    []uint32     // indexes of subjects, each link's with the same probability
	live     int64        // records
	edges    int64
	alive    int64 // of edges
	seq      int64
}

// linkSubject is a subject, and how often it was linked to.
type linkSubject struct {
	uid   uint64
	links uint32
}

type linkRecord struct {
	account, record uint64
	edges           int64
}

const (
	linkWorkers   = 8       // an interner has one of them for an account
	linkAccounts  = 1 << 20 // that link; their UIDs have the lowest numbers
	linkFollowed  = 10_000  // accounts that are linked to
	lateLinks     = 1 << 20
	newSubject    = 1 / 4.8 // of links; with those to accounts, a set has 4.9 in the mean
	accountLinks  = 0.02    // of links
	secondLink    = 0.14    // of records
	deletedRecord = 0.04    // of operations
)

// newLinkStream makes one that draws so many links, to look up their subjects.
func newLinkStream(draws int) *linkStream {
	l := &linkStream{rng: rand.New(rand.NewPCG(trafficSeed, 3)), drawn: make([]uint32, 0, draws)}
	l.accounts = rand.NewZipf(l.rng, 1.1, 200, linkAccounts-1)
	l.followed = rand.NewZipf(l.rng, 1.3, 1, linkFollowed-1)
	for i := range l.next {
		l.next[i] = linkAccounts
	}
	for n := range uint64(linkFollowed) {
		l.subjects = append(l.subjects, linkSubject{uid: accountUID(n)})
	}
	return l
}

// linkUID returns a UID of a worker's sequence.
func linkUID(worker, n uint64) uint64 { return (worker*1987+77)%(1<<14)<<50 | n }

func accountUID(n uint64) uint64 { return linkUID(accountWorker(n), n+1) }

func accountWorker(n uint64) uint64 { return relaysim.Mix(n) % linkWorkers }

// isAccount says whether a UID is a DID's.
func isAccount(uid uint64) bool { return uid&(1<<50-1) <= linkAccounts }

func (l *linkStream) fresh(worker uint64) uint64 {
	l.next[worker]++
	return linkUID(worker, l.next[worker])
}

// linkSource returns the source whose records link to a subject, which is a UID, and its number.
func linkSource(subject uint64) (source string, number uint32) {
	if isAccount(subject) {
		return "app.bsky.graph.follow:subject", 2
	}
	return "app.bsky.feed.like:subject.uri", 1
}

// link makes a link, and returns the index of its subject.
func (l *linkStream) link() (subject uint32) {
	if l.rng.Float64() < accountLinks {
		subject = uint32(l.followed.Uint64())
	} else {
		if len(l.late) == 0 || l.rng.Float64() < newSubject {
			subject = uint32(len(l.subjects))
			l.subjects = append(l.subjects, linkSubject{uid: l.fresh(l.rng.Uint64N(linkWorkers))})
		} else {
			subject = l.late[l.rng.IntN(len(l.late))]
		}
		l.late = relaysim.KeepSome(l.rng, l.late, lateLinks, subject)
	}
	l.subjects[subject].links++
	l.edges++
	if len(l.drawn) < cap(l.drawn) {
		l.drawn = append(l.drawn, subject)
	} else if i := l.rng.Int64N(l.edges); i < int64(len(l.drawn)) {
		l.drawn[i] = subject
	}
	return subject
}

// create makes a record.
func (l *linkStream) create() references.Change {
	n := l.accounts.Uint64()
	c := references.Change{Operation: references.Create, Account: accountUID(n), Record: l.fresh(accountWorker(n)), New: true}
	for n := 0; n == 0 || n == 1 && l.rng.Float64() < secondLink; n++ {
		r := references.Reference{Subject: l.subjects[l.link()].uid}
		_, r.Path = linkSource(r.Subject)
		if r.Authority = r.Subject; !isAccount(r.Subject) {
			r.Authority = r.Subject&^(1<<50-1) | 1 + relaysim.Mix(r.Subject)%1000
		}
		c.References = append(c.References, r)
	}
	l.alive += int64(len(c.References))
	l.live++
	l.records = relaysim.KeepSome(l.rng, l.records, lateLinks, linkRecord{c.Account, c.Record, int64(len(c.References))})
	return c
}

// remove deletes a late record.
func (l *linkStream) remove() references.Change {
	i, last := l.rng.IntN(len(l.records)), len(l.records)-1
	r := l.records[i]
	l.records[i] = l.records[last]
	l.records = l.records[:last]
	l.alive -= r.edges
	l.live--
	return references.Change{Operation: references.Delete, Account: r.account, Record: r.record}
}

// batch makes n changes, a frame each.
func (l *linkStream) batch(n int) *references.Batch {
	b := new(references.Batch)
	for range n {
		var c references.Change
		if len(l.records) > 100 && l.rng.Float64() < deletedRecord {
			c = l.remove()
		} else {
			c = l.create()
		}
		l.seq++
		c.Seq, c.Rev = l.seq, uint64(l.seq)
		b.Changes = append(b.Changes, c)
	}
	b.Position = references.Position{Epoch: 1, Seq: l.seq}
	return b
}
