package translate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestLimits holds that what is just within a limit is served. What is beyond is among the bad
// ones.
func TestLimits(t *testing.T) {
	nested := any("core")
	for range maxDepth - 1 {
		nested = []any{nested}
	}
	fill := func(n int) []byte { // a record of n bytes
		rec := cborOf(cborMap{{"a", make([]byte, n-8)}})
		return append(rec, make([]byte, n-len(rec))...)
	}
	manyKeys := make(cborMap, maxContainerLen)
	for i := range manyKeys {
		manyKeys[i] = pair{fmt.Sprintf("%05x", i*7919%0xfffff), 0}
	}
	records := map[string][]byte{
		"depth":    cborOf(cborMap{{"a", nested}}),
		"size":     fill(maxRecordBytes),
		"key":      cborOf(cborMap{{strings.Repeat("k", maxKeyBytes), 1}}),
		"elements": cborOf(cborMap{{"a", append(cborRaw{0x9a, 0, 2, 0, 0}, make([]byte, maxContainerLen)...)}}),
		"entries":  cborOf(manyKeys),
	}
	if len(records["size"]) != maxRecordBytes {
		t.Fatalf("a record of %d bytes", len(records["size"]))
	}
	tr := newTranslator(t)
	for name, rec := range records {
		var b Batch
		tr.AppendFrame(&b, frameOf("#commit", commitBody(carOf(blockOf(rec)), createOp("a.b.c/d", rec))))
		if len(b.Events) != 1 {
			t.Errorf("%s: drops %v", name, dropsOf(&b.Counts))
			continue
		}
		checkBatch(t, &b)
	}
	var ops []any
	for i := range MaxOps {
		ops = append(ops, deleteOp(fmt.Sprintf("a.b.c/%d", i)))
	}
	body := commitBody(carOf(), ops...)
	size := len(frameOf("#commit", body.With("blobs", make([]byte, 1<<20)))) - 1<<20
	var b Batch
	frame := frameOf("#commit", body.With("blobs", make([]byte, maxFrameBytes-size)))
	tr.AppendFrame(&b, frame)
	if len(frame) != maxFrameBytes || len(b.Events) != MaxOps {
		t.Errorf("a frame of %d bytes gave %d events", len(frame), len(b.Events))
	}
	checkBatch(t, &b)
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestDeclaredSizes holds that no declared length, however large, is believed: neither of a record,
// nor of a frame, nor of a CAR.
func TestDeclaredSizes(t *testing.T) {
	var frames [][]byte
	for _, major := range []byte{majorBytes, majorText, majorArray, majorMap} {
		for _, n := range []uint64{1 << 16, 1 << 24, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
			item := cborRaw(binary.BigEndian.AppendUint64([]byte{major<<5 | 27}, n))
			rec := cborOf(cborMap{{"a", item}})
			frames = append(frames,
				frameOf("#commit", commitBody(carOf(blockOf(rec)), createOp("a.b.c/d", rec))),
				frameOf("#commit", item),
				frameOf("#identity", identityBody().With("handle", item)),
				frameOf("#commit", commitBody(nil).With("ops", item)),
				frameOf("#commit", commitBody(nil, cborMap{{"path", item}})),
				append(cborOf(cborMap{{"op", 1}, {"t", item}}), make([]byte, 40)...),
				item)
		}
	}
	for _, n := range []uint64{1 << 20, 1 << 31, 1 << 32, 1 << 62, 1<<64 - 1} {
		car := binary.AppendUvarint(carOf(), n)
		frames = append(frames, frameOf("#commit", commitBody(car, createOp("a.b.c/d", goodCreate))))
	}
	tr := newTranslator(t)
	var b Batch
	if n := allocated(func() {
		for _, frame := range frames {
			tr.AppendFrame(&b, frame)
		}
	}); n > 1<<20 {
		t.Errorf("%d frames of some hundred bytes made %d bytes", len(frames), n)
	}
	if len(b.Events) != 0 {
		t.Errorf("%d events", len(b.Events))
	}
}

// TestHostileFrames holds that the largest and most twisted frames are over in bounded time and
// memory, and that the memory is not kept. Each takes some milliseconds; the limit is for slow
// machines.
func TestHostileFrames(t *testing.T) {
	repeat := func(n int, op any) []any { return slices.Repeat([]any{op}, n) }
	create := func(rec []byte, n int) []byte {
		return frameOf("#commit", commitBody(carOf(blockOf(rec)), repeat(n, createOp("a.b.c/d", rec))...))
	}
	deepArrays := append(cborOf(cborMap{{"a", nil}})[:3], bytes.Repeat([]byte{0x81}, maxRecordBytes-3)...)
	// Maps of two entries in the wrong order, 63 within each other, around as many numbers as fit.
	deepMaps := cborOf(cborMap{{"a", append(cborRaw{0x9a, 0, 1, 0, 0}, make([]byte, 1<<16)...)}})
	for range maxDepth - 2 {
		deepMaps = cborOf(cborMap{{"b", cborRaw(deepMaps)}, {"a", 1}})
	}
	deepBody := func(head byte) cborRaw { // a field that never ends
		return append(cborOf(cborMap{{"x", nil}})[:3], bytes.Repeat([]byte{head}, maxFrameBytes-100)...)
	}
	invalidAtEnd := cborOf(cborMap{{"a", make([]byte, maxRecordBytes-20)}, {"b", 1.5}})
	// Every byte of the text becomes six.
	escaped := cborOf(cborMap{{"a", strings.Repeat("<", maxRecordBytes-20)}})
	var colliding []carBlock
	for i := range 80_000 {
		c := cidOf([]byte("collide"))
		binary.BigEndian.PutUint32(c[32:], uint32(i))
		colliding = append(colliding, carBlock{c, nil})
	}
	missing := []any{}
	for i := range MaxOps {
		c := cidOf([]byte("collide"))
		binary.BigEndian.PutUint32(c[32:], uint32(1<<31+i))
		missing = append(missing, createOp("a.b.c/d", nil).With("cid", cborLink(c)))
	}
	cases := []struct {
		name   string
		frame  []byte
		events int
		drops  map[string]uint64
	}{
		{"arrays to the end of a record", create(deepArrays, 1), 0, map[string]uint64{"invalid_record": 1}},
		{"arrays to the end of a frame", frameOf("#commit", deepBody(0x81)), 0,
			map[string]uint64{"truncated_frame": 1}},
		{"tags to the end of a frame", frameOf("#commit", deepBody(0xc1)), 0,
			map[string]uint64{"truncated_frame": 1}},
		{"deep maps out of order", create(deepMaps, 50), 50, map[string]uint64{}},
		{"one invalid record named often", create(invalidAtEnd, MaxOps), 0, map[string]uint64{"invalid_record": MaxOps}},
		{"one large record named often", create(escaped, MaxOps), 0, map[string]uint64{"too_large": 1}},
		{"one tampered record named often", frameOf("#commit", commitBody(carOf(carBlock{cidOf(escaped), invalidAtEnd}), repeat(MaxOps, createOp("a.b.c/d", escaped))...)),
			0, map[string]uint64{"cid_mismatch": MaxOps}},
		{"CIDs alike", frameOf("#commit", commitBody(carOf(colliding...), missing...)), 0, map[string]uint64{"missing_block": MaxOps}},
	}
	tr := newTranslator(t)
	for _, tc := range cases {
		if len(tc.frame) > maxFrameBytes {
			t.Fatalf("%s: %d bytes", tc.name, len(tc.frame))
		}
		var b Batch
		took := time.Duration(math.MaxInt64)
		// again if the machine did something else
		for try := 0; try < 3 && took > 5*time.Second; try++ {
			b = Batch{}
			start := time.Now()
			tr.AppendFrame(&b, tc.frame)
			took = min(took, time.Since(start))
		}
		if took > 5*time.Second {
			t.Errorf("%s: took %v", tc.name, took)
		} else {
			t.Logf("%s: %d bytes took %v", tc.name, len(tc.frame), took)
		}
		if diff := cmp.Diff(tc.drops, dropsOf(&b.Counts)); diff != "" || len(b.Events) != tc.events {
			t.Errorf("%s: %d events, drops (-want +got):\n%s", tc.name, len(b.Events), diff)
		}
		for i := range b.Events {
			b.Stamp(i, MinTimeUS)
			if i == 0 && !json.Valid(b.Payload(i)) || !bytes.Equal(b.Payload(i), b.Payload(0)) {
				t.Fatalf("%s: event %d is no JSON or not as the first", tc.name, i)
			}
		}
		if cap(b.JSON) > 4*MaxFrameJSONBytes {
			t.Errorf("%s: the batch grew to %d bytes", tc.name, cap(b.JSON))
		}
		if cap(tr.record.entries) > maxKeptEntries || cap(tr.record.scratch) > maxKeptScratch || cap(tr.car.blocks) > maxKeptBlocks {
			t.Errorf("%s: %d entries, %d bytes and %d blocks of scratch are kept", tc.name,
				cap(tr.record.entries), cap(tr.record.scratch), cap(tr.car.blocks))
		}
	}
}

// TestFrameJSON holds that a frame of exactly as much JSON as is allowed is served. With a byte
// less it is dropped, before memory is taken for what is too large.
func TestFrameJSON(t *testing.T) {
	escaped := cborOf(cborMap{{"a", strings.Repeat("<", maxRecordBytes-20)}})
	small := testRecord("small")
	for _, tc := range []struct {
		name  string
		frame []byte
	}{
		{"one record", frameOf("#commit", commitBody(carOf(blockOf(escaped)), createOp("a.b.c/d", escaped)))},
		{"one record, named again", frameOf("#commit", commitBody(carOf(blockOf(small)), slices.Repeat([]any{createOp("a.b.c/d", small)}, MaxOps)...))},
		{"one record after another", frameOf("#commit", commitBody(carOf(blockOf(escaped), blockOf(small)), createOp("a.b.c/d", small), createOp("a.b.c/d", escaped)))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var all Batch
			newTranslator(t).AppendFrame(&all, tc.frame)
			size := len(all.JSON)
			for _, less := range []int{0, 1} {
				tr, err := New(Config{MaxFrameJSONBytes: size - less})
				if err != nil {
					t.Fatal(err)
				}
				b := Batch{JSON: make([]byte, 0, size+64)}
				tr.AppendFrame(&b, tc.frame) // makes its scratch
				b.Reset()
				n := allocated(func() { tr.AppendFrame(&b, tc.frame) })
				if dropped := b.Counts.Drops[ReasonTooLarge] == 1 && len(b.Events) == 0; dropped != (less == 1) {
					t.Errorf("%d bytes less: %d events, drops %v", less, len(b.Events), dropsOf(&b.Counts))
				}
				if n > 1<<18 {
					t.Errorf("%d bytes less: %d bytes were allocated", less, n)
				}
			}
		})
	}
	tr, err := New(Config{MaxFrameJSONBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	if n := allocated(func() {
		tr.AppendFrame(&b, frameOf("#commit", commitBody(carOf(blockOf(escaped)), createOp("a.b.c/d", escaped))))
	}); n > 1<<20+1<<19+uint64(len(escaped))*4 || b.Counts.Drops[ReasonTooLarge] != 1 {
		t.Errorf("%d bytes were allocated, drops %v", n, dropsOf(&b.Counts))
	}

	// A record that was translated once is not copied beyond what is allowed.
	half := cborOf(cborMap{{"a", strings.Repeat("<", maxRecordBytes/2)}})
	tr, err = New(Config{MaxFrameJSONBytes: maxRecordBytes / 2 * 6 * 3 / 2})
	if err != nil {
		t.Fatal(err)
	}
	b = Batch{JSON: make([]byte, 0, tr.maxJSONBytes)}
	tr.AppendFrame(&b, frameOf("#commit", commitBody(carOf(blockOf(half)), createOp("a.b.c/d", half), createOp("a.b.c/e", half))))
	if cap(b.JSON) != tr.maxJSONBytes || b.Counts.Drops[ReasonTooLarge] != 1 {
		t.Errorf("the batch grew from %d to %d bytes, drops %v", tr.maxJSONBytes, cap(b.JSON), dropsOf(&b.Counts))
	}
}

// TestTakeBack holds that a frame that is dropped when it has already given events takes back what
// it counted, too.
func TestTakeBack(t *testing.T) {
	rec := cborOf(cborMap{{"a", strings.Repeat("<", maxRecordBytes-20)}})
	ops := []any{nil, deleteOp("not.wanted.here/a"), deleteOp("a.b.c/d")}
	ops = append(ops, slices.Repeat([]any{createOp("a.b.c/d", rec)}, MaxFrameJSONBytes/(6*maxRecordBytes)+1)...)
	body := commitBody(carOf(blockOf(rec)), ops...)
	good := frameOf("#commit", body.With("ops", ops[:4]))
	tr := newTranslator(t, "a.b.*")
	var b Batch
	tr.AppendFrame(&b, good)
	want, size := b.Counts, len(b.JSON)
	if len(b.Events) != 2 || want.Filtered != 1 || want.Drops[ReasonInvalidOp] != 1 {
		t.Fatalf("%d events, counted %+v", len(b.Events), want)
	}
	tr.AppendFrame(&b, frameOf("#commit", body))
	want.Frames[FrameCommit]++
	want.Drops[ReasonTooLarge]++
	if b.Counts != want || len(b.Events) != 2 || len(b.JSON) != size {
		t.Errorf("%d events, counted %+v, want %+v", len(b.Events), b.Counts, want)
	}
}

// TestManyBlocks holds that one Translator finds the blocks of CARs of all sizes, one after
// another.
func TestManyBlocks(t *testing.T) {
	tr := newTranslator(t)
	for _, n := range []int{300, fewBlocks + 1, 40, 1, MaxOps, fewBlocks, 300, 900} {
		var b Batch
		tr.AppendFrame(&b, manyBlocksFrame(n))
		if len(b.Events) != n {
			t.Errorf("%d blocks: %d events, drops %v", n, len(b.Events), dropsOf(&b.Counts))
		}
		if hashed := len(tr.car.table) > 0; hashed != (n > fewBlocks) {
			t.Errorf("%d look-ups among as many blocks: by a table: %v", n, hashed)
		}
		for i := range b.Events {
			if !bytes.Contains(b.Payload(i), fmt.Appendf(nil, `"n":%d}`, i)) {
				t.Fatalf("event %d of %d: %s", i, n, b.Payload(i))
			}
		}
	}
}

// TestSharedBlocks holds that operations that name the same block, and CARs that hold one twice,
// give what they would alone.
func TestSharedBlocks(t *testing.T) {
	rec, other := testRecord("shared \u2028"), testRecord("other")
	tr := newTranslator(t)
	for _, extra := range []int{0, fewBlocks + 5} {
		blocks := []carBlock{blockOf(other), blockOf(rec), blockOf(rec), {cidOf(rec), []byte("not it")}}
		for i := range extra {
			blocks = append(blocks, blockOf(cborOf(cborMap{{"n", i}})))
		}
		var ops []any
		for i := range 4 * fewLookups {
			ops = append(ops, createOp(fmt.Sprintf("a.b.c/%d", i), [][]byte{rec, other}[i%2]))
		}
		var b Batch
		tr.AppendFrame(&b, frameOf("#commit", commitBody(carOf(blocks...), ops...)))
		if len(b.Events) != len(ops) {
			t.Fatalf("%d events, drops %v", len(b.Events), dropsOf(&b.Counts))
		}
		for i := range b.Events {
			want, _ := ourRecord(&recordCoder{}, [][]byte{rec, other}[i%2])
			if !bytes.Contains(b.Payload(i), append([]byte(`"record":`), want...)) {
				t.Errorf("event %d: %s", i, b.Payload(i))
			}
		}
		checkBatch(t, &b)
	}
}

// TestLargeHandle: an #identity or #account has no more JSON than the limit of a frame allows.
func TestLargeHandle(t *testing.T) {
	long := string(bytes.Repeat([]byte{0}, maxFrameBytes-300))
	const limit = 1 << 20
	for _, frame := range [][]byte{
		frameOf("#identity", identityBody().With("handle", long)),
		frameOf("#account", accountBody().With("status", long)),
	} {
		tr, err := New(Config{MaxFrameJSONBytes: limit})
		if err != nil {
			t.Fatal(err)
		}
		var b Batch
		tr.AppendFrame(&b, frame)
		if len(b.JSON) > limit || b.Counts.Drops[ReasonTooLarge] != 1 {
			t.Errorf("a frame of %d bytes gave %d bytes of JSON, the limit is %d; too_large %d", len(frame), len(b.JSON), limit, b.Counts.Drops[ReasonTooLarge])
		}
	}
}
