package relaysim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// ReadTruth returns the lines of a truth file so far. The last one may be under way.
func ReadTruth(name string) (lines []Line, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var l Line
		switch err := d.Decode(&l); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return lines, nil
		case err != nil:
			return nil, fmt.Errorf("line %d of relaysim's truth file: %w", len(lines)+1, err)
		}
		lines = append(lines, l)
	}
}

// addTruth makes the truth lines of the template's frame.
func (t *template) addTruth(frame []byte) error {
	expected, err := expect(frame)
	if err != nil {
		return err
	}
	for _, e := range expected {
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

	event, err := json.Marshal(&e.event)
	if err != nil {
		return err
	}
	holes, rkey := []holeKind{holeDID, holeDID, holeSeq, holeTime}, -1
	switch c := e.event.Commit; {
	case c != nil:
		holes = []holeKind{holeDID, holeRev}
		if rkey = slices.IndexFunc(t.original.rkeys, func(k tid) bool { return k.String() == c.RKey }); rkey >= 0 {
			holes = append(holes, holeRKey)
		}
	case e.event.Sync != nil:
		holes = []holeKind{holeDID, holeDID, holeRev, holeSeq, holeTime}
	}
	// What comes before a hole. The fields come in a fixed order. No text that a user has written
	// looks like one, as its quotes are escaped.
	keys := map[holeKind]string{holeDID: `"did":"`, holeRev: `"rev":"`, holeRKey: `"rkey":"`, holeSeq: `"seq":`, holeTime: `"time":"`}
	rest := string(event)
	for _, kind := range holes {
		key := keys[kind]
		before, after, ok := strings.Cut(rest, key)
		if !ok {
			return errors.New("no place for a hole in the JSON")
		}
		p.text(before + key)
		p.hole(kind, uint16(rkey))
		rest = after[strings.IndexAny(after, `",`):] // behind the value
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
