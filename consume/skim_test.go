package consume

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/ipld/go-ipld-prime/codec/dagcbor"
	"github.com/ipld/go-ipld-prime/datamodel"
	"github.com/ipld/go-ipld-prime/node/basicnode"
	"github.com/klauspost/compress/zstd"
)

// corpusFrames returns the frames of the shared corpus.
func corpusFrames(t testing.TB) [][]byte {
	t.Helper()
	raw, err := os.ReadFile("../../shared/corpus/frames.bin.zst")
	if err != nil {
		t.Skipf("the shared corpus is absent: %v", err)
	}
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	if raw, err = dec.DecodeAll(raw, nil); err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for len(raw) > 0 {
		n := binary.LittleEndian.Uint32(raw)
		frames = append(frames, raw[4:4+n:4+n])
		raw = raw[4+n:]
	}
	return frames
}

// oracle reads the envelope of msg with a general decoder that insists on canonical DAG-CBOR; ok
// is false if it does not take msg.
func oracle(msg []byte) (e envelope, why reason, ok bool) {
	r := bytes.NewReader(msg)
	decode := func() datamodel.Node {
		nb := basicnode.Prototype.Any.NewBuilder()
		opts := dagcbor.DecodeOptions{AllowLinks: true, DontParseBeyondEnd: true}
		if opts.Decode(nb, io.Reader(r)) != nil {
			return nil
		}
		return nb.Build()
	}
	header := decode()
	if header == nil || header.Kind() != datamodel.Kind_Map {
		return e, 0, false
	}
	if hasOtherTags(msg) {
		return e, 0, false // the decoder looks through tags that DAG-CBOR does not have
	}
	integer := func(n datamodel.Node, key string) (int64, bool) {
		v, err := n.LookupByString(key)
		if err != nil {
			return 0, false
		}
		i, err := v.AsInt()
		return i, err == nil
	}
	op, has := integer(header, "op")
	e = envelope{op: op, body: len(msg) - r.Len()}
	switch {
	case !has:
		return envelope{}, reasonHeader, true
	case op == opError:
		return e, reasonNone, true
	case op != opMessage:
		return envelope{}, reasonOp, true
	}
	typ, err := header.LookupByString("t")
	if err != nil {
		return envelope{}, reasonHeader, true
	}
	s, err := typ.AsString()
	if err != nil {
		return envelope{}, reasonHeader, true
	}
	known := []string{TypeCommit, TypeIdentity, TypeAccount, TypeSync, TypeInfo}
	if e.typ = TypeOther; slices.Contains(known, s) {
		e.typ = s
	}
	if e.typ == TypeInfo {
		return e, reasonNone, true
	}
	body := decode()
	if body == nil {
		return e, 0, false
	}
	if body.Kind() != datamodel.Kind_Map {
		return envelope{}, reasonSeq, true
	}
	if e.seq, has = integer(body, "seq"); !has || e.seq <= 0 {
		return envelope{}, reasonSeq, true
	}
	return e, reasonNone, true
}

// hasOtherTags reports whether a tag other than that of links stands anywhere in msg, as far as it
// can be read.
func hasOtherTags(msg []byte) bool {
	for at := 0; at >= 0 && at < len(msg); {
		major, arg, next := readHead(msg, at)
		if major == majorTag && arg != 42 {
			return true
		}
		if major == majorBytes || major == majorText {
			if arg > uint64(len(msg)) {
				return false
			}
			next += int(arg)
		}
		at = next
	}
	return false
}

// checkSkim compares skim with the oracle, where that has an opinion.
func checkSkim(t *testing.T, msg []byte) (compared bool) {
	t.Helper()
	got, gotWhy := skim(msg)
	if got.body < 0 || got.body > len(msg) || got.seq < 0 {
		t.Fatalf("skim(%x) = %+v", msg, got)
	}
	want, wantWhy, ok := oracle(msg)
	if ok && (got != want || gotWhy != wantWhy) {
		t.Fatalf("skim(%x) = %+v, %v, want %+v, %v", msg, got, gotWhy, want, wantWhy)
	}
	return ok
}

func TestSkimCorpus(t *testing.T) {
	frames := corpusFrames(t)
	if len(frames) != 60 {
		t.Fatalf("%d frames", len(frames))
	}
	last := int64(0)
	for _, f := range frames {
		if !checkSkim(t, f) {
			t.Fatal("the oracle does not take a real frame")
		}
		e, why := skim(f)
		if why != reasonNone || e.seq <= last || e.typ != TypeCommit {
			t.Fatalf("skim: %+v, %v after %d", e, why, last)
		}
		last = e.seq
		if n := testing.AllocsPerRun(10, func() { skim(f) }); n != 0 {
			t.Fatalf("skim allocates %v times", n)
		}
	}
}

// TestSkimCut cuts frames anywhere: from the end of seq on they are whole enough, before they are
// not.
func TestSkimCut(t *testing.T) {
	frame := frameOf(TypeCommit, 1234567, 300)
	end := bytes.Index(frame, []byte("repo")) - 1
	for n := range len(frame) {
		e, why := skim(frame[:n])
		if whole := n >= end; whole != (why == reasonNone) || whole != (e.seq == 1234567) {
			t.Errorf("cut to %d bytes (seq ends at %d): %+v, %v", n, end, e, why)
		}
	}
	body := skipItem(frame, 0)
	repo := findText(frame, body, "repo")
	for n := body; n < len(frame); n++ {
		if got := findText(frame[:n:n], body, "repo"); got != nil && !bytes.Equal(got, repo) {
			t.Errorf("cut to %d bytes: repo is %q, not %q", n, got, repo)
		}
	}
}

// TestOtherEvent: two frames of one number are of different events if their types, accounts or
// revisions differ, and not because one of them says less.
func TestOtherEvent(t *testing.T) {
	const commit, sync = "\xa2bop\x01at\x67#commit", "\xa2bop\x01at\x65#sync"
	const first = commit + "\xa3cseq\x05drepoadcreva1"
	for _, tt := range []struct {
		name, second string
		other        bool
	}{
		{"the same", first, false},
		{"another revision", commit + "\xa3cseq\x05drepoadcreva2", true},
		{"another account", commit + "\xa3cseq\x05drepoaecreva1", true},
		{"another type", sync + "\xa3cseq\x05drepoadcreva1", true},
		{"no revision", commit + "\xa2cseq\x05drepoad", false},
		{"another number", commit + "\xa3cseq\x06drepoaecreva1", false},
		{"no frame", "", false},
	} {
		if got := otherEvent([]byte(first), []byte(tt.second)); got != tt.other {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.other)
		}
	}
}

func TestSkim(t *testing.T) {
	const commit = "\xa2bop\x01at\x67#commit"
	for _, tt := range []struct {
		name, in string
		why      reason
		seq      int64
	}{
		{"t before op", "\xa2at\x67#commitbop\x01\xa1cseq\x05", reasonNone, 5},
		{"more header keys", "\xa3bop\x01ax\x82\x01\x02at\x67#commit\xa1cseq\x05", reasonNone, 5},
		{"seq last", commit + "\xa2dblob\x82\xa1aa\x01\xd8\x2a\x41\x00cseq\x05", reasonNone, 5},
		{"widest heads", "\xbb\x00\x00\x00\x00\x00\x00\x00\x02\x78\x02op\x1b\x00\x00\x00\x00\x00\x00\x00\x01at\x67#commit\xa1cseq\x1a\x00\x00\x00\x05", reasonNone, 5},
		{"two seqs", commit + "\xa2cseq\x05cseq\x06", reasonNone, 5},
		{"two ops", "\xa3bop\x01bop\x02at\x67#commit\xa1cseq\x05", reasonNone, 5},
		{"largest seq", commit + "\xa1cseq\x1b\x7f\xff\xff\xff\xff\xff\xff\xff", reasonNone, math.MaxInt64},
		{"seq too large", commit + "\xa1cseq\x1b\x80\x00\x00\x00\x00\x00\x00\x00", reasonSeq, 0},
		{"seq zero", commit + "\xa1cseq\x00", reasonSeq, 0},
		{"seq negative", commit + "\xa1cseq\x20", reasonSeq, 0},
		{"seq text", commit + "\xa1cseqa5", reasonSeq, 0},
		{"seq float", commit + "\xa1cseq\xfb\x40\x14\x00\x00\x00\x00\x00\x00", reasonSeq, 0},
		{"seq tagged", commit + "\xa1cseq\xc1\x05", reasonSeq, 0},
		{"no body", commit, reasonSeq, 0},
		{"body is an array", commit + "\x82cseq\x05", reasonSeq, 0},
		{"indefinite body", commit + "\xbfcseq\x05\xff", reasonSeq, 0},
		{"key is no text", commit + "\xa2\x01\x02cseq\x05", reasonSeq, 0},
		{"array longer than all", commit + "\xa2aa\x9a\xff\xff\xff\xff\xf6cseq\x05", reasonSeq, 0},
		{"map longer than all", commit + "\xbb\xff\xff\xff\xff\xff\xff\xff\xffcseq", reasonSeq, 0},
		{"nested maps of full length", commit + "\xa2aa\xbb\x7f\xff\xff\xff\xff\xff\xff\xff\xbb\x7f\xff\xff\xff\xff\xff\xff\xffcseq\x05", reasonSeq, 0},
		{"map whose length wraps around", commit + "\xa2aa\xbb\x7f\xff\xff\xff\xff\xff\xff\xffcseq\x05", reasonSeq, 0},
		{"text longer than all", commit + "\xa2aa\x7b\xff\xff\xff\xff\xff\xff\xff\xffcseq\x05", reasonSeq, 0},
		{"error", "\xa1bop\x20\xa0", reasonNone, 0},
		{"error without body", "\xa1bop\x20", reasonNone, 0},
		{"info", "\xa2bop\x01ate#info\xa0", reasonNone, 0},
		{"no t", "\xa1bop\x01\xa1cseq\x05", reasonHeader, 0},
		{"t is a number", "\xa2bop\x01at\x01\xa1cseq\x05", reasonHeader, 0},
		{"no op", "\xa1at\x67#commit\xa1cseq\x05", reasonHeader, 0},
		{"op is text", "\xa2bopa1at\x67#commit\xa1cseq\x05", reasonHeader, 0},
		{"op zero", "\xa2bop\x00at\x67#commit\xa1cseq\x05", reasonOp, 0},
		{"op beyond int64", "\xa1bop\x3b\xff\xff\xff\xff\xff\xff\xff\xff\xa0", reasonHeader, 0},
		{"header is an array", "\x82bop\x01", reasonHeader, 0},
		{"empty", "", reasonEmpty, 0},
	} {
		e, why := skim([]byte(tt.in))
		if why != tt.why || e.seq != tt.seq {
			t.Errorf("%s: %+v, %v, want seq %d, %v", tt.name, e, why, tt.seq, tt.why)
		}
	}
}

// TestSkipDeep skips nesting that would exhaust a recursive reader's stack, in linear time.
func TestSkipDeep(t *testing.T) {
	deep := append(bytes.Repeat([]byte{0x81}, 5<<20), 0xf6)
	if got := skipItem(deep, 0); got != len(deep) {
		t.Errorf("skipped to %d of %d", got, len(deep))
	}
	if got := skipItem(deep[:len(deep)-1], 0); got != -1 {
		t.Errorf("skipped a cut off item to %d", got)
	}
	// A length that is negative as an int leads back into the message.
	if got := skipItem(append([]byte{0x83, 0, 0, 0x5b}, bytes.Repeat([]byte{0xff}, 8)...), 0); got != -1 {
		t.Errorf("skipped bytes that are not there, to %d", got)
	}
}

func FuzzSkim(f *testing.F) {
	for _, b := range [][]byte{
		commitFrame(5), frameOf(TypeSync, math.MaxInt64, 1), frameOf("#fnord", 1<<33, 0),
		errorFrameOf(errorFutureCursor), infoFrameOf("OutdatedCursor"), {0xa1, 0x62, 'o', 'p', 1}, {},
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		before := bytes.Clone(msg)
		checkSkim(t, msg)
		if e, why := skim(msg); why == reasonNone && e.op == opError {
			clip(findText(msg, e.body, "error"), maxNameBytes)
		}
		if !bytes.Equal(before, msg) {
			t.Fatal("the message was changed")
		}
	})
}
