package relaysim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
)

// Line is a line of a truth file: an event at its position. With TruthReferences it also says what
// the references of its record are.
type Line struct {
	Epoch uint32          `json:"epoch"`
	Seq   int64           `json:"seq"`
	Op    uint32          `json:"op"`
	Event json.RawMessage `json:"event"`
	LineReferences
}

// LineReferences is what Table.Apply fills in.
type LineReferences struct {
	References []Reference `json:"references,omitempty"` // that the record of a create or update has
	Had        []Reference `json:"had,omitempty"`        // that the record had before
	Repeated   bool        `json:"repeated,omitempty"`   // the op came before, and changes nothing
}

// Table is the records that are alive and their references, in plain maps. It is what a consumer
// must hold that has seen the lines given to Apply, and no others.
type Table struct {
	accounts map[string]*tableAccount

	// The frame of the last line.
	epoch    uint32
	seq      int64
	accepted bool
	found    int // references so far
}

type tableAccount struct {
	rev     string // of its last commit
	deleted time.Time
	records map[string][]Reference // by collection/rkey
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{accounts: make(map[string]*tableAccount)} }

// Apply takes in the line that comes next and returns what it says of references. The frames of a
// consumer are in the order in which they came, each whole.
//
// A commit whose rev is not above that of its account's last changes nothing. Nor does the deletion
// of an account whose time is not above that of the last deletion. The deletion of an account takes
// all of its records; what it creates later is there.
func (t *Table) Apply(l *Line) (r LineReferences, err error) {
	var event struct {
		JetstreamEvent
		Commit *struct {
			JetstreamCommit
			Record any `json:"record"`
		} `json:"commit"`
	}
	if err := json.Unmarshal(l.Event, &event); err != nil {
		return r, fmt.Errorf("truth of seq %d, op %d: %w", l.Seq, l.Op, err)
	}
	began := t.epoch != l.Epoch || t.seq != l.Seq
	if t.epoch, t.seq = l.Epoch, l.Seq; began {
		t.found = 0
	}
	a := t.accounts[event.DID]
	if a == nil {
		a = &tableAccount{records: make(map[string][]Reference)}
		t.accounts[event.DID] = a
	}
	switch c := event.Commit; {
	case event.Account != nil && event.Account.Status != nil && *event.Account.Status == "deleted":
		at, err := time.Parse(time.RFC3339Nano, event.Account.Time)
		if err != nil {
			return r, fmt.Errorf("truth of seq %d: %w", l.Seq, err)
		}
		if r.Repeated = !at.After(a.deleted); !r.Repeated {
			a.deleted, a.records = at, make(map[string][]Reference)
		}
	case c != nil:
		if began {
			t.accepted = c.Rev > a.rev
			a.rev = max(a.rev, c.Rev)
		}
		r.References = findReferences(c.Record, maxFrameReferences-t.found)
		t.found += len(r.References)
		if r.Repeated = !t.accepted; r.Repeated {
			break
		}
		path := c.Collection + "/" + c.RKey
		r.Had = a.records[path]
		if c.Operation == "delete" {
			delete(a.records, path)
		} else {
			a.records[path] = r.References
		}
	}
	return r, nil
}

// Records returns the URI and the references of each record that is alive, in the order of the
// URIs.
func (t *Table) Records() iter.Seq2[string, []Reference] {
	return func(yield func(string, []Reference) bool) {
		for _, did := range slices.Sorted(maps.Keys(t.accounts)) {
			records := t.accounts[did].records
			for _, path := range slices.Sorted(maps.Keys(records)) {
				if !yield("at://"+did+"/"+path, records[path]) {
					return
				}
			}
		}
	}
}

// complete appends truth lines with what t says of them.
func (t *Table) complete(dst, lines []byte) ([]byte, error) {
	for text := range bytes.Lines(lines) {
		var l Line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("read truth line: %w", err)
		}
		r, err := t.Apply(&l)
		if err != nil {
			return nil, err
		}
		tail, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		dst = append(dst, bytes.TrimSuffix(text, []byte("}\n"))...)
		if len(tail) > len("{}") {
			dst = append(append(dst, ','), tail[1:len(tail)-1]...)
		}
		dst = append(dst, "}\n"...)
	}
	return dst, nil
}
