package public

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/consume/relaysim/cbor"
	"millrace/public/internal/testframe"
	"millrace/translate"
)

// referenceWants is a filter, in strings.
type referenceWants struct {
	Collections []string `json:"wantedCollections"`
	DIDs        []string `json:"wantedDids"`
	Subjects    []string `json:"wantedSubjects"`
	SubjectDIDs []string `json:"wantedSubjectDids"`
	Sources     []string `json:"wantedSources"`
}

func (w *referenceWants) query() string {
	return url.Values{"wantedCollections": w.Collections, "wantedDids": w.DIDs, "wantedSubjects": w.Subjects,
		"wantedSubjectDids": w.SubjectDIDs, "wantedSources": w.Sources}.Encode()
}

// of returns those of the events that pass, as wire.md has it.
func (w *referenceWants) of(events []referenceTruth) (passing []referenceTruth) {
	for _, e := range events {
		ok := len(w.DIDs) == 0 || slices.Contains(w.DIDs, e.did)
		if e.kind == translate.KindCommit {
			ok = ok && (len(w.Collections) == 0 || slices.Contains(w.Collections, e.collection))
			ok = ok && (len(w.Subjects)+len(w.SubjectDIDs)+len(w.Sources) == 0 || slices.ContainsFunc(slices.Concat(e.has, e.had), w.wants))
		}
		if ok {
			passing = append(passing, e)
		}
	}
	return passing
}

func (w *referenceWants) wants(r wireReference) bool {
	subject := len(w.Subjects)+len(w.SubjectDIDs) == 0 || slices.Contains(w.Subjects, r.Subject) ||
		slices.Contains(w.SubjectDIDs, r.authority())
	return subject && (len(w.Sources) == 0 || slices.Contains(w.Sources, r.Source))
}

// referenceWorld draws events and filters. The later, the more accounts there are.
type referenceWorld struct {
	*referenceLog
	rng   *rand.Rand
	keys  int
	alive []string // DID/collection/rkey
}

func (w *referenceWorld) account() int { return w.rng.IntN(6 + w.keys/20) }

func (w *referenceWorld) record(collection string) cbor.Map {
	switch collection {
	case "app.bsky.feed.like":
		return like(postURI(w.account()))
	case "app.bsky.feed.post":
		return post(postURI(w.account()), didN(w.account()))
	}
	return cbor.Map{{Key: fmt.Sprint("of", w.keys/30), Value: didN(w.account())}}
}

var worldCollections = []string{"app.bsky.feed.like", "app.bsky.feed.post", "com.example.thing"}

func (w *referenceWorld) frame() frame {
	switch k := w.rng.IntN(10); {
	case k == 0:
		return identity(didN(w.account()))
	case k < 4 && len(w.alive) > 0:
		i := w.rng.IntN(len(w.alive))
		path := strings.SplitN(w.alive[i], "/", 2)
		if w.rng.IntN(2) == 0 {
			collection, _, _ := strings.Cut(path[1], "/")
			return testframe.Ops(path[0], op("update", path[1], w.record(collection)))
		}
		w.alive = slices.Delete(w.alive, i, i+1)
		return testframe.Ops(path[0], op("delete", path[1], nil))
	}
	w.keys++
	collection := worldCollections[w.rng.IntN(len(worldCollections))]
	did, path := didN(w.account()), fmt.Sprintf("%s/%d", collection, w.keys)
	w.alive = append(w.alive, did+"/"+path)
	return testframe.Ops(did, op("create", path, w.record(collection)))
}

func (w *referenceWorld) more() []referenceTruth {
	var frames []frame
	for range 1 + w.rng.IntN(25) {
		frames = append(frames, w.frame())
	}
	return w.add(frames...)
}

// some draws up to n of what draw makes, most often none.
func (w *referenceWorld) some(n int, draw func() string) (all []string) {
	for range w.rng.IntN(2) * w.rng.IntN(n+1) {
		if s := draw(); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

func (w *referenceWorld) filter() referenceWants {
	did := func() string { return didN(w.rng.IntN(20)) }
	return referenceWants{
		Collections: w.some(2, func() string { return worldCollections[w.rng.IntN(3)] }),
		DIDs:        w.some(8, did),
		Subjects: w.some(6, func() string {
			if w.rng.IntN(2) == 0 {
				return did()
			}
			return postURI(w.rng.IntN(20))
		}),
		SubjectDIDs: w.some(4, did),
		Sources: w.some(4, func() string {
			return []string{"app.bsky.feed.like:subject.uri", "app.bsky.feed.post:reply.uri", "app.bsky.feed.post:<text>",
				fmt.Sprint("com.example.thing:of", w.rng.IntN(5))}[w.rng.IntN(4)]
		}),
	}
}

// cursor draws one, and returns the events that come from there on.
func (w *referenceWorld) cursor() (cursor string, events []referenceTruth) {
	i := w.rng.IntN(len(w.all))
	switch w.rng.IntN(4) {
	case 0:
		return "", nil
	case 1:
		return "0", w.all
	case 2:
		return fmt.Sprint(w.all[i].timeUS), w.all[i:]
	}
	return w.all[i].cursor(), w.all[i+1:]
}

// TestSubjectFiltersEqualAFullScan has subscribers with random filters and cursors read a log while
// it grows by subjects that are new. They change their filters, and each gets what a look at
// everything finds.
func TestSubjectFiltersEqualAFullScan(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := &referenceWorld{referenceLog: newReferenceLog(t), rng: rand.New(rand.NewPCG(seed, 0))}
	s := serve(t, w.testLog, w.config)
	type reading struct {
		*client
		wants                referenceWants
		extended, references bool
	}
	w.more()
	var readers []*reading
	for updates := 0; updates < 60; {
		if len(readers) < 12 {
			cursor, events := w.cursor()
			r := &reading{wants: w.filter(), extended: w.rng.IntN(2) == 0}
			r.references = r.extended && w.rng.IntN(2) == 0
			r.client = s.dial(fmt.Sprintf("cursor=%s&extended=%t&references=%t&%s", cursor, r.extended, r.references, r.wants.query()))
			r.wantReferences(r.extended, r.references, r.wants.of(events)...)
			if r.extended {
				r.info("live")
			}
			readers = append(readers, r)
		}
		i := w.rng.IntN(len(readers))
		switch r := readers[i]; w.rng.IntN(4) {
		case 0:
			s.waitThrough(w.all[len(w.all)-1].timeUS) // else the new filter is for events before it, too
			r.wants = w.filter()
			payload, err := json.Marshal(r.wants)
			if err != nil {
				t.Fatal(err)
			}
			r.update(string(payload))
			updates++
			s.waitUpdates(updates)
		case 1:
			r.Close()
			readers = slices.Delete(readers, i, i+1)
		default:
			added := w.more()
			for _, r := range readers {
				r.wantReferences(r.extended, r.references, r.wants.of(added)...)
			}
		}
	}
	for _, r := range readers {
		r.Close()
	}
	eventually(t, "no string waits", func() bool { return w.waiting() == 0 })
}
