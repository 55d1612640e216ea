package graph

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func staticConfig() Config { return Config{Sources: testSources, StoreID: "uids"} }

// addStatic adds edges to a file, in several additions.
func addStatic(t *testing.T, name string, changes []Change) (edges int64) {
	t.Helper()
	s, err := OpenStatic(name, staticConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for half := range slices.Chunk(changes, len(changes)/2+1) {
		for source := range testSources {
			var edges []Edge
			for _, c := range half {
				if c.Source == source {
					edges = append(edges, c.Edge)
				}
			}
			if err := s.Add(source, edges); err != nil {
				t.Fatal(err)
			}
		}
	}
	if edges, err = s.Save(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return edges
}

// TestStatic compares graphs that begin with a file of static edges with the model: alone, with
// records, after removals, and loaded from a snapshot. Each passes on what is in the files.
func TestStatic(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	name, m := filepath.Join(t.TempDir(), "static"), model{}
	var changes []Change
	draw := func(n int, record func(i int) uint64) (drawn []Change) {
		for i := range n {
			e := Edge{Actor: 1 + r.Uint64N(9000), Subject: 1 + r.Uint64N(9000), Record: record(i)}
			if r.IntN(3) == 0 {
				e.Subject = 2 // a bitmap
			}
			drawn = append(drawn, Change{Source: r.IntN(10) / 9, Edge: e})
			m.apply(drawn[i])
		}
		return drawn
	}
	for range 2 { // the second import has some of the first one's
		changes = append(changes, draw(20_000, func(int) uint64 { return 0 })...)
		if n := addStatic(t, name, changes[len(changes)/3:]); n > int64(len(m)) {
			t.Fatalf("%d edges, of %d", n, len(m))
		}
	}
	if n := addStatic(t, name, changes); n != int64(len(m)) {
		t.Fatalf("%d edges, of %d", n, len(m))
	}
	g, err := LoadStatic(name, "uids", testConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	checkSets(t, g, m, 20)
	records := draw(30_000, func(i int) uint64 { return uint64(i + 1) })
	fill(t, r, g, records)
	checkSets(t, g, m, 20)
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	g = reload(t, g, snapshot)
	checkEach(t, snapshot, m)
	for i := range records {
		records[i].Remove = true
		m.apply(records[i])
	}
	if err := g.Build(records); err != nil {
		t.Fatal(err)
	}
	checkSets(t, g, m, 20)
	checkEach(t, name, m)
	if err := g.Build([]Change{{Edge: Edge{Actor: changes[0].Actor}, Remove: true, All: true}}); err != nil {
		t.Fatal(err)
	}
	checkSets(t, g, m, 20)
}

// checkEach compares the edges of a file with the model.
func checkEach(t *testing.T, name string, m model) {
	t.Helper()
	got := map[modelEdge]bool{}
	err := Each(name, func(e *Edges) error {
		for _, subject := range e.Subjects {
			edge := modelEdge{e.Source, e.Actor, subject, e.Static}
			if got[edge] {
				t.Fatalf("%+v comes twice", edge)
			}
			got[edge] = true
		}
		return nil
	})
	want := map[modelEdge]bool{}
	for edge := range m {
		want[edge] = true
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Fatalf("%v, edges, -want +got:\n%.2000s", err, d)
	}
	failed := errors.New("failed")
	if err := Each(name, func(*Edges) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("what do returns is lost: %v", err)
	}
}

// TestStaticFile: a file that is damaged, or another store's, is refused, and pages of a graph
// before do not go on.
func TestStaticFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "static")
	if _, err := LoadStatic(name, "uids", testConfig()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	addStatic(t, name, []Change{{Edge: Edge{Actor: 1, Subject: 2}}})
	var builds []uint64
	for range 2 {
		g, err := LoadStatic(name, "uids", testConfig())
		if err != nil {
			t.Fatal(err)
		}
		if builds = append(builds, g.build); g.cfg.StoreID != "store" || g.cfg.Generation != 3 {
			t.Errorf("it is of %+v", g.cfg)
		}
		g.Close()
	}
	if builds[0] == builds[1] {
		t.Error("two graphs that begin with one file have one build")
	}
	if _, err := LoadStatic(name, "others", testConfig()); err == nil || !strings.Contains(err.Error(), `UID store "uids", not "others"`) {
		t.Errorf("of another store: %v", err)
	}
	other := staticConfig()
	other.StoreID = "others"
	if _, err := OpenStatic(name, other); err == nil || !strings.Contains(err.Error(), `of UID store "uids"`) {
		t.Errorf("of another store: %v", err)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for at := range raw {
		damaged := slices.Clone(raw)
		damaged[at] ^= 1
		if err := os.WriteFile(name, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err1 := LoadStatic(name, "uids", testConfig())
		_, err2 := OpenStatic(name, staticConfig())
		if err1 == nil || err2 == nil {
			t.Fatalf("with byte %d damaged: %v, %v", at, err1, err2)
		}
	}
}

// TestStaticMemory: edges that do not fit are an error, and the file stays as it is.
func TestStaticMemory(t *testing.T) {
	name := filepath.Join(t.TempDir(), "static")
	cfg := staticConfig()
	cfg.Memory = 2 * chunkBytes
	s, err := OpenStatic(name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var edges []Edge
	for n := range uint64(200_000) {
		edges = append(edges, Edge{Actor: n + 1, Subject: n + 2})
	}
	if err := s.Add(0, edges); !errors.Is(err, ErrStaticMemory) || !strings.Contains(err.Error(), "memory of 8388608 bytes") {
		t.Errorf("too many edges: %v", err)
	}
	if _, err := s.Save(t.Context(), name); err == nil {
		t.Error("they are saved")
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a file: %v", err)
	}
}
