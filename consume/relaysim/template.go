package relaysim

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"millrace/consume/relaysim/cbor"
)

// template is a frame taken apart: what stays the same whenever it is sent, and the holes for what
// does not. It is immutable.
type template struct {
	frame pattern
	truth pattern // the frame's truth lines
	raw   []byte  // a captured frame as it was found; nil for generated ones

	ofSync bool // truth is of a #sync

	original values    // what was in the holes
	rkeys    []rkeyUse // what is done under original.rkeys, by index
	ops      int
}

// rkeyUse says what a frame does with a record key that can be exchanged.
type rkeyUse struct {
	collection string
	action     string
}

// cut is a value within a frame that becomes a hole.
type cut struct {
	from, to int
	kind     holeKind
	rkey     uint16
}

// newTemplate takes apart a frame that a relay may send. It keeps neither frame nor parts of it.
func newTemplate(frame []byte, withTruth bool) (*template, error) {
	t := &template{}
	s := scanner{b: frame}
	s.skip() // header
	cuts := t.scanBody(&s)
	if s.err != nil || s.at != len(frame) {
		return nil, fmt.Errorf("take frame apart at byte %d of %d: %w", s.at, len(frame), errCBOR)
	}
	at := 0
	for _, c := range cuts {
		t.frame.literal = append(t.frame.literal, frame[at:c.from]...)
		t.frame.hole(c.kind, c.rkey)
		at = c.to
	}
	t.frame.literal = append(t.frame.literal, frame[at:]...)
	if withTruth {
		if err := t.addTruth(frame); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// scanBody finds the values to cut, in the order they come.
func (t *template) scanBody(s *scanner) (cuts []cut) {
	for n := s.count(cbor.MapOf); n > 0 && s.err == nil; n-- {
		key := string(s.text())
		from := s.at
		kind := holeKind(0)
		switch key {
		case "seq":
			kind = holeSeqCBOR
			_, seq := s.head()
			t.original.seq = int64(seq)
		case "repo", "did":
			kind = holeDIDCBOR
			t.original.did = bytes.Clone(s.text())
		case "time":
			kind = holeTimeCBOR
			t.original.time = bytes.Clone(s.text())
		case "rev":
			if rev := s.text(); len(rev) == tidLen {
				kind = holeRev
				from = s.at - tidLen
				t.original.rev = tid(rev)
			}
		case "ops":
			cuts = t.scanOps(s, cuts)
		default:
			s.skip()
		}
		if kind != 0 {
			cuts = append(cuts, cut{from: from, to: s.at, kind: kind})
		}
	}
	return cuts
}

// scanOps finds the record keys that are TIDs. Equal keys in one frame share one index, because
// lexicons join records that way (a post and its thread gate).
func (t *template) scanOps(s *scanner, cuts []cut) []cut {
	t.ops = s.count(cbor.Array)
	for range t.ops {
		var action string
		var path []byte
		end := 0
		for n := s.count(cbor.MapOf); n > 0 && s.err == nil; n-- {
			switch string(s.text()) {
			case "action":
				action = string(s.text())
			case "path":
				path = s.text()
				end = s.at
			default:
				s.skip()
			}
		}
		collection, rkey, ok := bytes.Cut(path, []byte("/"))
		if !ok || len(rkey) != tidLen {
			continue
		}
		if _, err := syntax.ParseTID(string(rkey)); err != nil {
			continue
		}
		use := rkeyUse{collection: string(collection), action: action}
		cuts = append(cuts, cut{from: end - tidLen, to: end, kind: holeRKey, rkey: t.rkeyIndex(tid(rkey), use)})
	}
	return cuts
}

// rkeyIndex returns the index of rkey in the template's list, which it joins if it is new.
func (t *template) rkeyIndex(rkey tid, use rkeyUse) uint16 {
	i := slices.Index(t.original.rkeys, rkey)
	if i < 0 {
		i = len(t.rkeys)
		t.original.rkeys = append(t.original.rkeys, rkey)
		t.rkeys = append(t.rkeys, use)
	}
	return uint16(i)
}
