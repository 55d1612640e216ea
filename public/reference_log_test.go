package public

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"millrace/intern"
	"millrace/replay"
	"millrace/translate"
)

// wireReference is a reference as subscribers get it.
type wireReference struct {
	Source  string `json:"source"`
	Subject string `json:"subject"`
	UID     uint64 `json:"uid,string"`
}

// authority returns the DID of the subject, "" if it has none.
func (r *wireReference) authority() string {
	s := strings.TrimPrefix(r.Subject, "at://")
	s, _, _ = strings.Cut(s, "/")
	if !strings.HasPrefix(s, "did:") {
		return ""
	}
	return s
}

// referenceTruth is an event with what it refers to.
type referenceTruth struct {
	truth
	kind       translate.Kind
	collection string
	has, had   []wireReference
	uids       string // its member, with a comma before it
}

// extended is the event as extended subscribers get it.
func (e *referenceTruth) extended(t testing.TB, references bool) string {
	t.Helper()
	s := strings.TrimSuffix(extendedJSON(e.truth), "}") + e.uids
	if !references {
		return s + "}"
	}
	var gone []wireReference
	for _, r := range e.had {
		if !slices.Contains(e.has, r) {
			gone = append(gone, r)
		}
	}
	for _, m := range []struct {
		name string
		refs []wireReference
	}{{"references", e.has}, {"deleted_references", gone}} {
		if len(m.refs) == 0 {
			continue
		}
		b, err := json.Marshal(m.refs)
		if err != nil {
			t.Fatal(err)
		}
		s += `,"` + m.name + `":` + string(b)
	}
	return s + "}"
}

// referenceLog is a log whose events have references, and the UID store that it is of.
type referenceLog struct {
	*testLog
	uids    *intern.Interner
	metrics *prometheus.Registry
	records map[string][]wireReference // what those that are alive point at, by path
	all     []referenceTruth
}

func newReferenceLog(t *testing.T) *referenceLog {
	t.Helper()
	l := &referenceLog{metrics: prometheus.NewRegistry(), records: make(map[string][]wireReference)}
	l.uids = newInterner(t, l.metrics)
	names := func(uids []uint64, strings []string) error {
		return l.uids.LookupUIDs(context.Background(), uids, strings)
	}
	// Most is read from the disk.
	l.testLog = openTestLog(t, replay.Config{References: true, Strings: names, TailBytes: 10_000}, translate.Config{References: true})
	return l
}

// config makes a server one of l.
func (l *referenceLog) config(cfg *Config, _ *timing) { cfg.UIDs = l.uids }

// waiting is how many strings wait for their UIDs.
func (l *referenceLog) waiting() float64 {
	n, err := testutil.GatherAndCount(l.metrics, "millrace_intern_waiting_strings")
	if err != nil || n != 1 {
		l.t.Fatal(n, err)
	}
	families, _ := l.metrics.Gather()
	for _, f := range families {
		if f.GetName() == "millrace_intern_waiting_strings" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

// add appends one block of the frames' events, as the daemon does, and returns them.
func (l *referenceLog) add(frames ...frame) (added []referenceTruth) {
	l.t.Helper()
	l.append(nil, func(b *translate.Batch) *replay.EventReferences {
		added = l.resolve(b)
		return l.numbers(added)
	}, frames)
	l.all = append(l.all, added...)
	return added
}

// resolve gives the events and references of b their UIDs, and returns what they are.
func (l *referenceLog) resolve(b *translate.Batch) []referenceTruth {
	l.t.Helper()
	var reqs []intern.Request
	for i := range b.Events {
		reqs = append(reqs, intern.Request{DID: b.DID(i), Collection: b.Collection(i), RecordKey: b.RecordKey(i)})
	}
	for i := range b.References {
		reqs = append(reqs, intern.Request{Name: b.Subject(i)})
	}
	out := make([]intern.Result, len(reqs))
	if err := l.uids.Resolve(context.Background(), reqs, out); err != nil {
		l.t.Fatal(err)
	}
	added := make([]referenceTruth, len(b.Events))
	for i := range b.Events {
		e := &b.Events[i]
		e.DIDUID, e.URIUID = out[i].DIDUID, out[i].URIUID
		added[i] = referenceTruth{
			truth: l.truth(b, i), kind: e.Kind, collection: string(b.Collection(i)), uids: fmt.Sprintf(`,"uids":{"did":"%d"}`, e.DIDUID),
		}
		if e.URIUID != 0 {
			added[i].uids = fmt.Sprintf(`,"uids":{"did":"%d","uri":"%d"}`, e.DIDUID, e.URIUID)
		}
	}
	for i := range b.References {
		r, u := &b.References[i], out[len(b.Events)+i]
		if r.SubjectUID, r.AuthorityUID = u.DIDUID, u.DIDUID; r.IsURI() {
			r.SubjectUID = u.URIUID
		}
		e := &added[r.Event]
		e.has = append(e.has, wireReference{e.collection + ":" + string(b.ReferencePath(i)), string(b.Subject(i)), r.SubjectUID})
	}
	for i := range added {
		if added[i].kind != translate.KindCommit {
			continue
		}
		path := added[i].did + "/" + added[i].collection + "/" + string(b.RecordKey(i))
		added[i].had, l.records[path] = l.records[path], added[i].has
	}
	return added
}

// numbers returns the references of the events in numbers.
func (l *referenceLog) numbers(events []referenceTruth) *replay.EventReferences {
	l.t.Helper()
	refs := &replay.EventReferences{}
	for i := range events {
		for _, list := range [][]wireReference{events[i].has, events[i].had} {
			for _, r := range list {
				source, ok := l.SourceNumber([]byte(r.Source))
				authority, known, err := l.uids.Lookup(context.Background(), r.authorityString())
				if !ok || !known || err != nil {
					l.t.Fatalf("%+v: %t, %t, %v", r, ok, known, err)
				}
				refs.List = append(refs.List, replay.Reference{
					Source: source, Subject: r.UID, Authority: authority, Had: len(events[i].had) > 0 && &list[0] == &events[i].had[0],
				})
			}
		}
		refs.Ends = append(refs.Ends, uint32(len(refs.List)))
	}
	return refs
}

// authorityString is the string that the authority's UID stands for.
func (r *wireReference) authorityString() string {
	if a := r.authority(); a != "" {
		return a
	}
	handle, _, _ := strings.Cut(strings.TrimPrefix(r.Subject, "at://"), "/")
	return "at://" + handle
}
