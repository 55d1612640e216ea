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
	raw   []byte  // a captured frame that is sent as it was found; nil: the pattern is sent

	ofSync bool // the frame is a #sync

	original values    // what was in the holes
	rkeys    []rkeyUse // what is done under original.rkeys, by index
	ops      int
}

// rkeyUse says what a frame does with a record key that can be exchanged.
type rkeyUse struct {
	collection string
	action     string
}

// newTemplate takes apart a frame that a relay may send. It keeps neither frame nor parts of it.
func newTemplate(frame []byte, withTruth bool) (*template, error) {
	kind, _, _ := splitFrame(frame) // an error frame has none
	t := &template{ofSync: kind == "#sync"}
	s := templateScanner{scanner: scanner{b: frame}, t: t}
	s.skip() // header
	s.body()
	if s.err != nil || s.at != len(frame) {
		return nil, fmt.Errorf("take frame apart at byte %d of %d: %w", s.at, len(frame), errCBOR)
	}
	t.frame.literal = append(t.frame.literal, frame[s.taken:]...)
	if withTruth {
		if err := t.addTruth(frame); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// templateScanner moves a frame into a template.
type templateScanner struct {
	scanner
	t     *template
	taken int // so many of the frame's bytes are in the template
}

// hole makes a hole of the bytes between from and to, and takes what is before.
func (s *templateScanner) hole(from, to int, kind holeKind, rkey uint16) {
	p := &s.t.frame
	p.literal = append(p.literal, s.b[s.taken:from]...)
	p.hole(kind, rkey)
	s.taken = to
}

// body finds the values of the envelope.
func (s *templateScanner) body() {
	v := &s.t.original
	for n := s.count(cbor.MapOf); n > 0 && s.err == nil; n-- {
		key := string(s.text())
		from := s.at
		switch key {
		case "seq":
			_, seq := s.head()
			v.seq = int64(seq)
			s.hole(from, s.at, holeSeqCBOR, 0)
		case "repo", "did":
			v.did = bytes.Clone(s.text())
			s.hole(from, s.at, holeDIDCBOR, 0)
		case "time":
			v.time = bytes.Clone(s.text())
			s.hole(from, s.at, holeTimeCBOR, 0)
		case "rev":
			if rev := s.text(); len(rev) == tidLen {
				v.rev = tid(rev)
				s.hole(s.at-tidLen, s.at, holeRev, 0)
			}
		case "ops":
			s.ops()
		default:
			s.skip()
		}
	}
}

// ops finds the record keys that are TIDs. Equal keys in one frame share one index, because
// lexicons join records that way (a post and its thread gate).
func (s *templateScanner) ops() {
	s.t.ops = s.count(cbor.Array)
	for range s.t.ops {
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
		s.hole(end-tidLen, end, holeRKey, s.t.rkeyIndex(tid(rkey), use))
	}
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
