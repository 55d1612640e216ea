package relaysim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Each line of a truth file is one event that a correct consumer must hold, in order:
//
//	{"epoch":0,"seq":101,"op":0,"event":{…Jetstream's JSON with "time_us":0…}}
//
// epoch counts how often the numbering has begun anew, seq and op are the event's position in it.
// Events of #sync are there with Config.TruthSync.
//
// With references, there is also what the record of the op has, what it had before, and whether it
// has come before. A reference is its path and its subject; what is empty is left out:
//
//	…,"references":[["subject.uri","at://…"]],"had":[["subject.uri","at://…"]],"repeated":true}

// truthFile is where the truth goes. A nil one takes and forgets everything.
type truthFile struct {
	f     *os.File
	table *Table // nil: lines say nothing of references
	lines []byte // scratch
}

// openTruth begins a truth file.
func openTruth(name string, references bool) (*truthFile, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("open truth file: %w", err)
	}
	t := &truthFile{f: f}
	if references {
		t.table = NewTable()
	}
	return t, nil
}

// write hands whole lines to the operating system: they outlive this process from then on.
func (t *truthFile) write(lines []byte) (err error) {
	if t == nil || len(lines) == 0 {
		return nil
	}
	if t.table != nil {
		if t.lines, err = t.table.complete(t.lines[:0], lines); err != nil {
			return err
		}
		lines = t.lines
	}
	if _, err := t.f.Write(lines); err != nil {
		return fmt.Errorf("write truth file: %w", err)
	}
	return nil
}

func (t *truthFile) close() error {
	if t == nil {
		return nil
	}
	return t.f.Close()
}

// The stand-ins that are marshalled where a hole comes. The fields come in a fixed order before
// everything that a user has written, so the first occurrence is always the right one.
const (
	standInDID  = "did:hole:did"
	standInRev  = "hole-rev"
	standInRKey = "hole-rkey"
	standInTime = "hole-time"
	standInSeq  = 7_210_340_051
)

// standIn is the text of a stand-in, and the hole that it is replaced by.
type standIn struct {
	text string
	hole
}

var errStandIn = errors.New("no place for a hole in the JSON")

// addTruth makes the truth lines of the template's frame.
func (t *template) addTruth(frame []byte) error {
	expected, err := expect(frame)
	if err != nil {
		return err
	}
	for _, e := range expected {
		t.ofSync = e.event.Sync != nil
		if err := t.addLine(e); err != nil {
			return fmt.Errorf("truth of op %d: %w", e.op, err)
		}
	}
	return nil
}

// addLine appends one truth line with its holes.
func (t *template) addLine(e expectation) error {
	p := &t.truth
	p.text(`{"epoch":`)
	p.hole(holeEpoch, 0)
	p.text(`,"seq":`)
	p.hole(holeSeq, 0)
	p.text(`,"op":` + strconv.Itoa(e.op) + `,"event":`)

	did, rev := standIn{standInDID, hole{kind: holeDID}}, standIn{standInRev, hole{kind: holeRev}}
	seq, at := standIn{strconv.Itoa(standInSeq), hole{kind: holeSeq}}, standIn{standInTime, hole{kind: holeTime}}
	stand := []standIn{did}
	e.event.DID = standInDID
	switch {
	case e.event.Commit != nil:
		c := *e.event.Commit
		c.Rev, stand = standInRev, append(stand, rev)
		if i := slices.IndexFunc(t.original.rkeys, func(rkey tid) bool { return rkey.String() == c.RKey }); i >= 0 {
			c.RKey, stand = standInRKey, append(stand, standIn{standInRKey, hole{kind: holeRKey, rkey: uint16(i)}})
		}
		e.event.Commit = &c
	case e.event.Identity != nil:
		i := *e.event.Identity
		i.Did, i.Seq, i.Time = standInDID, standInSeq, standInTime
		e.event.Identity, stand = &i, append(stand, did, seq, at)
	case e.event.Account != nil:
		a := *e.event.Account
		a.Did, a.Seq, a.Time = standInDID, standInSeq, standInTime
		e.event.Account, stand = &a, append(stand, did, seq, at)
	case e.event.Sync != nil:
		s := *e.event.Sync
		s.Did, s.Rev, s.Seq, s.Time = standInDID, standInRev, standInSeq, standInTime
		e.event.Sync, stand = &s, append(stand, did, rev, seq, at)
	}
	line, err := json.Marshal(&e.event)
	if err != nil {
		return err
	}
	rest := string(line)
	for _, s := range stand {
		before, after, ok := strings.Cut(rest, s.text)
		if !ok {
			return errStandIn
		}
		p.text(before)
		p.hole(s.kind, s.rkey)
		rest = after
	}
	p.text(rest + "}\n")
	return nil
}

// appendTruthLine appends the truth line of an event that is complete as it is.
func appendTruthLine(dst []byte, epoch uint32, seq int64, e expectation) []byte {
	event, err := json.Marshal(&e.event)
	if err != nil {
		panic("relaysim: " + err.Error()) // every part of it has been marshalled before
	}
	return fmt.Appendf(dst, `{"epoch":%d,"seq":%d,"op":%d,"event":%s}`+"\n", epoch, seq, e.op, event)
}
