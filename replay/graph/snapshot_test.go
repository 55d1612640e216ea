package graph

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"millrace/replay/references"
)

// section is one section of a snapshot whose checksum holds.
type section struct {
	kind    byte
	payload []byte
}

// words encodes numbers of 32 bits.
func words(ns ...uint32) []byte {
	var b []byte
	for _, n := range ns {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}

// join joins what a payload is made of.
func join(runs ...[]byte) []byte { return slices.Concat(runs...) }

func bitmapOf(t *testing.T, members ...uint32) []byte {
	t.Helper()
	b, err := roaring.BitmapOf(members...).ToBytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func headerOf(t *testing.T, accounts int) section {
	t.Helper()
	b, err := json.Marshal(Header{StoreID: "store", Generation: 3, Sources: testSources[:1], Tables: []int{0}, Accounts: accounts})
	if err != nil {
		t.Fatal(err)
	}
	return section{sectionHeader, b}
}

func loadSections(t *testing.T, cfg Config, sections []section) (*Graph, error) {
	t.Helper()
	var file bytes.Buffer
	file.WriteString(magic)
	w := &sectionWriter{w: bufio.NewWriter(&file)}
	for _, p := range sections {
		w.section(p.kind, p.payload)
	}
	name := filepath.Join(t.TempDir(), "snapshot")
	if err := errors.Join(w.err, w.w.Flush(), os.WriteFile(name, file.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	g, err := Load(name, cfg)
	if err == nil {
		t.Cleanup(func() { g.Close() })
	}
	return g, err
}

// TestLoadSections: a snapshot of several sections is loaded as it was saved.
func TestLoadSections(t *testing.T) {
	g, r := newTest(t, testConfig()), rand.New(rand.NewPCG(1, 2))
	f := g.Fill()
	for actor := range uint64(800) {
		var changes []Change
		for record := range uint64(3000) {
			changes = append(changes, Change{Edge: Edge{1 + actor, 2000 + r.Uint64N(1<<16), 1 + record}})
		}
		if err := f.Add(changes); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.End(); err != nil {
		t.Fatal(err)
	}
	clear(g.more)                  // which has no order
	g.indexes[0].incomplete.Add(7) // an Out set, and no In set
	dir := t.TempDir()
	saved := func(g *Graph, name string) []byte {
		t.Helper()
		name = filepath.Join(dir, name)
		raw, err := []byte(nil), g.Save(t.Context(), name)
		if err == nil {
			raw, err = os.ReadFile(name)
		}
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	first := saved(g, "first")
	loaded, err := Load(filepath.Join(dir, "first"), testConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	if len(first) < 2*sectionBytes || !bytes.Equal(first, saved(loaded, "again")) {
		t.Errorf("of %d bytes, what is loaded is not what was saved", len(first))
	}
}

// TestPeek: a look at a snapshot reads its header, and says what is wrong with the file's start.
func TestPeek(t *testing.T) {
	want := Header{StoreID: "store", Generation: 3, Sources: testSources, Accounts: 7}
	payload, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	file.WriteString(magic)
	w := &sectionWriter{w: bufio.NewWriter(&file)}
	w.section(sectionHeader, payload)
	if err := errors.Join(w.err, w.w.Flush()); err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(file.Bytes())
	damaged[len(damaged)-6] ^= 1
	for says, raw := range map[string][]byte{
		"": file.Bytes(), "checksum": damaged, "it is not a graph snapshot": []byte("letter"), "read its head": []byte(magic),
		`it is of version "3", and this millrace knows "4"`:  []byte(magicStart + "3\n"),
		`it is of version "10", and this millrace knows "4"`: []byte(magicStart + "10\n"),
	} {
		name := filepath.Join(t.TempDir(), "snapshot")
		if err := os.WriteFile(name, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := Peek(name)
		if says == "" && (err != nil || !reflect.DeepEqual(h, want)) {
			t.Errorf("got %+v, %v, want %+v", h, err, want)
		} else if says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	if _, err := Peek(filepath.Join(t.TempDir(), "snapshot")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}

// TestWrongContents writes snapshots whose checksums hold and whose contents cannot be.
func TestWrongContents(t *testing.T) {
	cfg := Config{Sources: testSources[:1], StoreID: "store", Generation: 3}
	none := bitmapOf(t)
	noFlags := func(source byte) section {
		return section{sectionFlags, join([]byte{source}, bytes.Repeat(join(words(uint32(len(none))), none), 2))}
	}
	accounts := section{sectionAccounts, words(7, 0, 8, 0, 9, 0)} // the accounts 7, 8, and 9
	encoded := func(head uint64, data []byte) []byte {
		return join(binary.AppendUvarint(binary.AppendUvarint(nil, head), uint64(len(data))), data)
	}
	list := func(members uint64, ordinals ...uint32) []byte {
		low := lowBits(ordinals)
		return encoded(2*members, appendCode([]byte{byte(low)}, ordinals, low))
	}
	bitmap := func(members uint64, data []byte) []byte { return encoded(2*members+1, data) }
	sets := func(source byte, first uint32, sets ...[]byte) section {
		return section{sectionSets, join([]byte{source}, words(first), join(sets...))}
	}
	empty := []byte{0}
	out := sets(0, 0, list(2, 1, 2), bitmap(1, bitmapOf(t, 0)), empty) // 0 → 1, 0 → 2, 1 → 0
	record := section{sectionRecords, words(0, 0, 2, 77, 0)}
	end := section{kind: sectionEnd}
	good := []section{headerOf(t, 3), accounts, out, noFlags(0), record, end}
	g, err := loadSections(t, cfg, good)
	if err != nil {
		t.Fatal(err)
	}
	if s := g.Stats(); s.Accounts != 3 || s.Edges != 3 || len(g.more) != 1 {
		t.Fatalf("loaded %+v", s)
	}
	large := make([]uint32, largeFrom) // so many members, if there were as many accounts
	for i := range large {
		large[i] = uint32(i)
	}
	withTables := func(tables ...int) section {
		b, err := json.Marshal(Header{StoreID: "store", Generation: 3, Sources: testSources[:1], Tables: tables, Accounts: 3})
		if err != nil {
			t.Fatal(err)
		}
		return section{sectionHeader, b}
	}
	replace := func(at int, p ...section) []section { return slices.Replace(slices.Clone(good), at, at+1, p...) }
	setsOf0 := func(s ...[]byte) []section { return replace(2, sets(0, 0, s...)) }
	for _, tc := range []struct {
		name, want string
		sections   []section
	}{
		{"no header", "the header is missing or repeated", good[1:]},
		{"two headers", "the header is missing or repeated", replace(1, good[0], accounts)},
		{"an empty header", "read the header", replace(0, section{sectionHeader, nil})},
		{"fewer accounts than none", "take more than", replace(0, headerOf(t, -1))},
		{"accounts beyond 31 bits", "take more than", replace(0, headerOf(t, 1<<31))},
		{"a kind that is none", "unknown section kind 7", replace(4, section{7, nil})},
		{"half an account", "bytes of accounts", replace(1, section{sectionAccounts, words(7, 0, 8, 0, 9)})},
		{"a section of no accounts", "bytes of accounts", slices.Insert(slices.Clone(good), 2, section{kind: sectionAccounts})},
		{"an account too many", "bytes of accounts", replace(0, headerOf(t, 2))},
		{"an account too few", "after 2 of 3 accounts", replace(1, section{sectionAccounts, words(7, 0, 8, 0)})},
		{"an account twice", "account 7 occurs twice", replace(1, section{sectionAccounts, words(7, 0, 8, 0, 7, 0)})},
		{"a table that is none", "the tables [2]; expected numbers from 0 to 1", replace(0, withTables(2))},
		{"a table below all", "the tables [-1]; expected numbers from 0 to 1", replace(0, withTables(-1))},
		{"tables out of order", "the tables [1 0]; expected numbers from 0 to 1, rising", replace(0, withTables(1, 0))},
		{"a table twice", "the tables [0 0]; expected numbers from 0 to 1, rising", replace(0, withTables(0, 0))},
		{"sets of the next table", "sets of table 1 from ordinal 0, after 3 of 3 accounts; expected table 0, ordinal 0", replace(2, sets(1, 0, empty, empty, empty))},
		{"sets from further on", "sets of table 0 from ordinal 1, after 3 of 3 accounts; expected table 0, ordinal 0", replace(2, sets(0, 1, empty, empty, empty))},
		{"sets of no table", "sets of table 1", replace(4, sets(1, 0, empty))},
		{"a set too many", "more than 3 sets", setsOf0(empty, empty, empty, empty)},
		{"a set too few", "after 2 sets", setsOf0(list(2, 1, 2), empty)},
		{"a set that ends early", errShort.Error(), replace(2, section{sectionSets, out.payload[:len(out.payload)-3]})},
		{"a set without data", errShort.Error(), replace(2, sets(0, 0, []byte{2}))},
		{"a head that never ends", errShort.Error(), replace(2, sets(0, 0, bytes.Repeat([]byte{0x80}, 11)))},
		{"a list of none", "is not valid", setsOf0(encoded(1<<63, nil))},
		{"a list without data", "a list of 1 members in 0 bytes", setsOf0(encoded(2, nil))},
		{"a list too short", "a list of 3 members", setsOf0(list(3, 1, 2))},
		{"a list too long", "a list of 1 members", setsOf0(encoded(2, []byte{0, 0, 1}))},
		{"a list with a byte too many", "a list of 1 members", setsOf0(encoded(2, []byte{1, 1, 1}))},
		{"a list far too long", "a list of 1 members", setsOf0(encoded(2, join([]byte{0}, bytes.Repeat([]byte{0xff}, 1<<20))))},
		{"a member that is no account", "a list of 1 members", setsOf0(list(1, 3))},
		{"a sum that is no account", "a list of 2 members", setsOf0(list(2, 2, 3))},
		{"a gap that is too long", "a list of 1 members", setsOf0(encoded(2, join([]byte{31}, bytes.Repeat([]byte{0xff}, 1<<10))))},
		{"too many low bits", "a list of 1 members", setsOf0(encoded(2, []byte{32}))},
		{"a bitmap of none", "its bitmap does not have the members", setsOf0(bitmap(0, none))},
		{"a bitmap of one more", "its bitmap does not have the members", setsOf0(bitmap(2, bitmapOf(t, 0)))},
		{"a bitmap of no account", "its bitmap does not have the members", setsOf0(bitmap(1, bitmapOf(t, 3)))},
		{"a bitmap that is none", "read a bitmap", setsOf0(bitmap(1, []byte{1, 2, 3}))},
		{"flags of the next table", "flags of table 1", replace(3, noFlags(1))},
		{"flags before the sets", "flags of table 0 after 0 sets", replace(2, noFlags(0))},
		{"flags of no table", "flags of table 1", replace(4, noFlags(1))},
		{"flags that are no bitmap", "read a bitmap", replace(3, section{sectionFlags, join([]byte{0}, words(3), []byte{1, 2, 3})})},
		{"flags without the second", "read a bitmap", replace(3, section{sectionFlags, join([]byte{0}, words(uint32(len(none))), none)})},
		{"records before the last set", "records come before the last set", replace(3, record, noFlags(0))},
		{"a record of no source", "a record of an edge that does not exist", replace(4, section{sectionRecords, words(1, 0, 2, 77, 0)})},
		{"a record of no edge", "a record of an edge that does not exist", replace(4, section{sectionRecords, words(0, 2, 0, 77, 0)})},
		{"half a record", errShort.Error(), replace(4, section{sectionRecords, words(0, 0, 2, 77)})},
		{"an end before the last table", "ends after 0 of 1 tables", slices.Concat(good[:3], []section{end})},
		{"no end", "read its head", good[:5]},
		{"another end", "data follows its end", append(slices.Clone(good), end)},
	} {
		_, err := loadSections(t, cfg, tc.sections)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
	// A list of as many members as a bitmap has, of a graph of as many accounts.
	many := []section{headerOf(t, largeFrom+1), {kind: sectionAccounts}}
	for n := range uint32(largeFrom + 1) {
		many[1].payload = append(many[1].payload, words(n+1, 0)...)
	}
	if _, err := loadSections(t, cfg, append(many, sets(0, 0, list(largeFrom, large...)))); err == nil ||
		!strings.Contains(err.Error(), "a list of 4096 members") {
		t.Errorf("a list that must be a bitmap: %v", err)
	}
	long := encoded(2*4000, join([]byte{31}, make([]byte, 4*4000))) // 32 bits a member
	if _, err := loadSections(t, cfg, append(many, sets(0, 0, long))); err == nil || !strings.Contains(err.Error(), "a list of 4000 members") {
		t.Errorf("a list that is longer than any slot: %v", err)
	}
}

// TestLoadMemoryOfAccounts: a header of more accounts than fit is refused before memory is taken.
func TestLoadMemoryOfAccounts(t *testing.T) {
	cfg := Config{Sources: testSources[:1], StoreID: "store", Generation: 3, Memory: 2 * chunkBytes}
	for accounts, want := range map[int]string{2 * chunkBytes / 16: "read its head", 2*chunkBytes/16 + 1: "take more than 8388608 bytes"} {
		if _, err := loadSections(t, cfg, []section{headerOf(t, accounts)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d accounts: %v, want %q", accounts, err, want)
		}
	}
}

// TestDamagedLength: a section that says that it is larger than any is refused before it is read.
func TestDamagedLength(t *testing.T) {
	for n, want := range map[uint32]string{maxSection: "read its 1073741824 bytes", maxSection + 1: "more than 1073741824"} {
		if _, _, err := readSection(bytes.NewReader(join([]byte{sectionSets}, words(n), make([]byte, 100))), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a section of %d bytes: %v, want %q", n, err, want)
		}
	}
}

// TestLoadMemory: a snapshot of a graph that had more memory is refused.
func TestLoadMemory(t *testing.T) {
	g := newTest(t, testConfig())
	var edges []Change
	for n := range uint64(280_000) { // more slots than a chunk has
		for k := range uint64(3) {
			edges = append(edges, Change{Edge: Edge{n + 1, n + 2 + k*20_000, 3*n + k + 1}})
		}
	}
	if err := g.Build(edges); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "snapshot")
	if err := g.Save(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig()
	for cfg.Memory = 2 * chunkBytes; ; cfg.Memory += chunkBytes {
		loaded, err := Load(name, cfg)
		if err == nil {
			s := loaded.Stats()
			loaded.Close()
			if s.Bytes > cfg.Memory || s.Edges != g.Stats().Edges {
				t.Errorf("%+v after %+v, of %d bytes", s, g.Stats(), cfg.Memory)
			}
			if cfg.Memory == 2*chunkBytes || cfg.Memory > g.Stats().Bytes+2*chunkBytes {
				t.Errorf("%d bytes are enough, the graph has %d", cfg.Memory, g.Stats().Bytes)
			}
			return
		}
		if !strings.Contains(err.Error(), "the memory given to the graph") {
			t.Fatal(err)
		}
	}
}

// TestSaveFails: a Save that fails says so, leaves the snapshot that is there, and the next one
// works.
func TestSaveFails(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it needs the devices of Linux")
	}
	g := newTest(t, testConfig())
	name := filepath.Join(t.TempDir(), "snapshot")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for seq, tc := range []struct {
		name, temp string
		ctx        context.Context
		edges      int
		want       error
	}{
		{name: "a full disk at the end", temp: "/dev/full", edges: 1, want: syscall.ENOSPC},
		{name: "a full disk within", temp: "/dev/full", edges: 150_000, want: syscall.ENOSPC},
		{name: "a sync that fails", temp: "/dev/null", edges: 1, want: syscall.EINVAL},
		{name: "a server that stops", ctx: stopped, want: context.Canceled},
	} {
		reload(t, g, name)
		before := g.Position()
		var edges []Change
		for n := range uint64(tc.edges) {
			edges = append(edges, Change{Edge: Edge{n + 1, n + 2, n + 1}})
		}
		if err := g.Apply(references.Position{Seq: int64(seq + 1)}, edges); err != nil {
			t.Fatal(err)
		}
		if tc.temp != "" {
			if err := os.Symlink(tc.temp, name+".tmp"); err != nil {
				t.Fatal(err)
			}
		}
		if tc.ctx == nil {
			tc.ctx = t.Context()
		}
		if err := g.Save(tc.ctx, name); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
		if _, err := os.Lstat(name + ".tmp"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file that is not whole is left: %v", tc.name, err)
		}
		old, err := Load(name, testConfig())
		if err != nil {
			t.Fatalf("%s: the snapshot before it: %v", tc.name, err)
		}
		if old.Position() != before || g.walk != nil {
			t.Errorf("%s: the snapshot is of %v, want %v", tc.name, old.Position(), before)
		}
		old.Close()
	}
	taken := t.TempDir()
	if err := g.Save(t.Context(), taken); err == nil {
		t.Error("a directory was replaced")
	}
	if err := g.Save(t.Context(), filepath.Join(taken, "none", "snapshot")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a directory that is not there: %v", err)
	}
	g.Close()
	if err := g.Save(t.Context(), name); !errors.Is(err, ErrClosed) {
		t.Errorf("of a graph that is closed: %v", err)
	}
}
