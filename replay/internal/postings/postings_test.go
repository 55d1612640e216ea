package postings

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// wide encodes UIDs in eight bytes.
type wide struct{}

func (wide) Append(dst []byte, uid uint64) []byte { return binary.BigEndian.AppendUint64(dst, uid) }

func (wide) Next(b []byte) (uint64, []byte, error) {
	if len(b) < 8 {
		return 0, nil, errShort
	}
	return binary.BigEndian.Uint64(b), b[8:], nil
}

func (e Entry) compare(f Entry) int { return cmp.Compare(e.Arrival, f.Arrival) }

// randomEntries are sorted, with numbers near each other and far.
func randomEntries(rng *rand.Rand) (entries []Entry) {
	last := uint64(0)
	for range rng.IntN(30) {
		last += 1 + rng.Uint64()>>(1+rng.IntN(63))/32
		e := Entry{Arrival: last}
		if n := rng.IntN(maxLength + 1); n > 0 {
			e.Link = make([]byte, n)
			for i := range e.Link {
				e.Link[i] = byte(rng.Uint32())
			}
		}
		entries = append(entries, e)
	}
	return entries
}

func TestGolden(t *testing.T) {
	c, set := wide{}, Set{Subject: 1, Path: 300}
	for _, g := range []struct {
		want string
		got  []byte
	}{
		{"2101" + "60" + "8207aabb", AppendEntries(nil, []Entry{{1, []byte{1}}, {4, nil}, {32, []byte{0xaa, 0xbb}}})},
		{"81ffffffffffffffff3f01", AppendEntries(nil, []Entry{{1<<64 - 4, []byte{1}}})},
		{"0000000000000001" + "0101", AppendLink(nil, c, 1, 256)},
		{"0000000000000001", AppendLink(nil, c, 1, 1)},
		{"20" + "0000000000000001" + "ac02", AppendChunk(nil, c, set, 0)},
		{"20" + "0000000000000001" + "ac02" + "0000000000000007", AppendChunk(nil, c, set, 7)},
		{"21" + "0000000000000001" + "ac02", AppendSet(nil, c, RangeHead, set)},
		{"22" + "0000000000000001" + "ac02" + "0000000000000009", AppendAccount(nil, c, set, 9)},
		{"23" + "0000000000000001" + "ac02" + "0000000000000007", AppendStart(nil, c, set, 7)},
		{"ac020107", Head{300, 1, 7}.Append(nil)},
		{"05ac02", AppendArrivals(nil, []uint64{5, 305})},
	} {
		if got := hex.EncodeToString(g.got); got != g.want {
			t.Errorf("%s, want %s", got, g.want)
		}
	}
}

// TestEntries: entries are decoded as they were written; a malformed value is an error.
func TestEntries(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		want := randomEntries(rng)
		b := AppendEntries([]byte("x"), want)[1:]
		got, err := DecodeEntries(nil, b)
		if d := gocmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Fatalf("seed %d: %v (-want +got):\n%s", seed, err, d)
		}
	}
	for _, b := range []string{"\x01", "\x80\x00", "\x81", "\x21\x01\x01\x01", "\x81\xff\xff\xff\xff\xff\xff\xff\xff\x7f1"} {
		if got, err := DecodeEntries(nil, []byte(b)); err == nil {
			t.Errorf("%x is taken for %v", b, got)
		}
	}
}

func TestLinks(t *testing.T) {
	for _, uids := range [][2]uint64{{1, 1}, {1 << 50, 1<<50 | 1<<40}, {1, 1 << 63}, {^uint64(0), 1}} {
		account, record, err := DecodeLink(wide{}, AppendLink(nil, wide{}, uids[0], uids[1]))
		if err != nil || account != uids[0] || record != uids[1] {
			t.Errorf("%x comes back as %x, %x, %v", uids, account, record, err)
		}
	}
	if _, _, err := DecodeLink(wide{}, append(wide{}.Append(nil, 1), 0, 1)); !errors.Is(err, errForm) {
		t.Errorf("a long form: %v", err)
	}
}

// TestKeys: keys sort by subject, source and start, and come back.
func TestKeys(t *testing.T) {
	var last []byte
	for subject := range uint64(3) {
		for _, path := range []uint32{0, 1, 127, 128, 1<<32 - 1} {
			for _, start := range []uint64{0, 1, 255, 256, 1 << 63} {
				key := AppendChunk(nil, wide{}, Set{subject, path}, start)
				set, rest, err := ParseSet(wide{}, key)
				at, err2 := ParseStart(rest)
				if err != nil || err2 != nil || set != (Set{subject, path}) || at != start {
					t.Errorf("%x comes back as %v, %d, %v, %v", key, set, at, err, err2)
				}
				if bytes.Compare(last, key) >= 0 && start > 0 {
					t.Errorf("%x is not after %x", key, last)
				}
				last = key
			}
		}
	}
}

// FuzzMerge folds additions and removals of numbers in parts and in any order, as compactions do,
// and compares with a set.
func FuzzMerge(f *testing.F) {
	f.Add(uint64(1), uint64(40))
	f.Add(uint64(2), uint64(400))
	f.Fuzz(func(t *testing.T, seed, size uint64) {
		rng := rand.New(rand.NewPCG(seed, 2))
		type operand struct{ value []byte }
		var operands []operand
		alive := make(map[uint64]bool)
		for n := range size % 1000 {
			arrival := n + 1
			alive[arrival] = true
			operands = append(operands, operand{AppendEntries(nil, []Entry{{arrival, []byte{byte(n), 1}}})})
			if old := 1 + rng.Uint64N(arrival); alive[old] && rng.IntN(2) == 0 {
				delete(alive, old)
				operands = append(operands, operand{AppendEntries(nil, []Entry{{Arrival: old}})})
			}
		}
		// Compactions fold neighbours, without the oldest operand.
		for range rng.IntN(20) {
			if len(operands) < 2 {
				break
			}
			from := rng.IntN(len(operands) - 1)
			to := from + 2 + rng.IntN(len(operands)-from-1)
			var parts [][]byte
			for _, o := range operands[from:to] {
				parts = append(parts, o.value)
			}
			operands = slices.Replace(operands, from, to, operand{fold(t, rng, parts, false)})
		}
		var parts [][]byte
		for _, o := range operands {
			parts = append(parts, o.value)
		}
		var got []uint64
		if len(parts) > 0 {
			entries, err := DecodeEntries(nil, fold(t, rng, parts, true))
			if err != nil || !slices.IsSortedFunc(entries, Entry.compare) {
				t.Fatalf("%v, %v", entries, err)
			}
			for _, e := range entries {
				if e.Link == nil || e.Link[0] != byte(e.Arrival-1) {
					t.Fatalf("entry %+v", e)
				}
				got = append(got, e.Arrival)
			}
		}
		var want []uint64
		for arrival := range alive {
			want = append(want, arrival)
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%d, want %d", got, want)
		}
	})
}

// fold merges values, of which the oldest is the first, as Pebble may.
func fold(t *testing.T, rng *rand.Rand, values [][]byte, base bool) []byte {
	t.Helper()
	older := rng.IntN(2) == 0
	if older {
		values = slices.Clone(values)
		slices.Reverse(values)
	}
	borrowed := slices.Clone(values[0])
	m, err := Merger().Merge(nil, borrowed)
	for _, v := range values[1:] {
		clear(borrowed) // it was borrowed for the call
		borrowed = slices.Clone(v)
		if older {
			err = errors.Join(err, m.MergeOlder(borrowed))
		} else {
			err = errors.Join(err, m.MergeNewer(borrowed))
		}
	}
	clear(borrowed)
	value, closer, err2 := m.Finish(base)
	if err := errors.Join(err, err2); err != nil || closer != nil {
		t.Fatal(err)
	}
	return value
}

// TestDamagedArrivals: arrival numbers that do not rise, or are more than 64 bits, are damage. The
// merger has the name that stores were made with.
func TestDamagedArrivals(t *testing.T) {
	for _, b := range []string{"\x00", "\x05\x00", "\x80", "\x05\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		if got, err := DecodeArrivals(nil, []byte(b)); err == nil {
			t.Errorf("%x is taken for %v", b, got)
		}
	}
	if name := Merger().Name; name != "pebble.concatenate" {
		t.Errorf("the merger is %s", name)
	}
}

// TestTwice: a number that is added twice is damage.
func TestTwice(t *testing.T) {
	_, err := Fold([]Entry{{1, []byte{1}}, {1, []byte{1}}}, true)
	if !errors.Is(err, errTwice) || !strings.Contains(err.Error(), "twice") {
		t.Errorf("%v", err)
	}
}

// FuzzDecode: no input makes a decoder panic, and what one takes is written as it was.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x21\x01\x60\x82\x07\xaa\xbb"))
	f.Add([]byte("\xac\x02\x01\x07"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if entries, err := DecodeEntries(nil, b); err == nil && !bytes.Equal(AppendEntries(nil, entries), b) {
			t.Errorf("entries %v", entries)
		}
		if h, err := DecodeHead(b); err == nil && !bytes.Equal(h.Append(nil), b) {
			t.Errorf("head %v", h)
		}
		if a, err := DecodeArrivals(nil, b); err == nil && !bytes.Equal(AppendArrivals(nil, a), b) {
			t.Errorf("arrivals %v", a)
		}
		if account, record, err := DecodeLink(wide{}, b); err == nil && !bytes.Equal(AppendLink(nil, wide{}, account, record), b) {
			t.Errorf("link %x, %x", account, record)
		}
	})
}
