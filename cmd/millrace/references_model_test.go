package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/consume/relaysim"
	"millrace/replay/references"
)

// referencesWorld is a data directory whose server notes what records point at, most of the time.
// Its parts are restored from copies and its log is trimmed.
type referencesWorld struct {
	t   *testing.T
	rng *rand.Rand
	sim *simulator
	dir string

	oldLog     string // a copy of the log; "": none was made
	generation uint32 // of the reference store
	from       references.Position
	trimmed    bool // the log has lost events that the generation has seen
}

// live runs a server for some events more and compares the reference store with the truth, if
// references are on. begins says that a new generation must begin.
func (w *referencesWorld) live(what string, begins bool, flags ...string) {
	t := w.t
	t.Helper()
	d := startDaemon(t, w.sim.url, w.dir, append(flags, "--retention-bytes", strconv.Itoa(1<<19), "--uid-prefix-bits", "1")...)
	at := d.log.Progress().Seq
	waitFor(t, "events", func() bool { return d.log.Progress().Seq > at+100+w.rng.Int64N(500) })
	if d.refs != nil {
		g := d.refs.Generation()
		if begun := g.Number != w.generation; begun != begins || g.From != w.from && !begun {
			t.Fatalf("%s: generation %d from %v, before it was %d from %v; it must begin anew: %t", what, g.Number, g.From, w.generation, w.from, begins)
		}
		w.generation, w.from = g.Number, g.From
		w.check(what, d)
	}
	if oldest := d.log.Range().Oldest.Position.Seq; d.refs != nil && oldest > w.from.Seq+1 {
		w.trimmed = true
	}
	d.mustStop(t)
}

// check compares the records of the reference store with those that the truth has at its position,
// from where its generation begins.
func (w *referencesWorld) check(what string, d *testDaemon) {
	t := w.t
	t.Helper()
	var rows []references.Row
	var uids []uint64
	at, err := d.refs.Rows(t.Context(), func(r *references.Row) error {
		row := *r
		row.References = slices.Clone(r.References)
		rows, uids = append(rows, row), append(uids, r.Record)
		for _, ref := range r.References {
			uids = append(uids, ref.Subject)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(uids))
	for i := 0; i < len(uids); i += 1000 {
		to := min(i+1000, len(uids))
		if err := d.uids.interner.LookupUIDs(t.Context(), uids[i:to], names[i:to]); err != nil {
			t.Fatal(err)
		}
	}
	var records []string
	for _, row := range rows {
		var refs []relaysim.Reference
		for i, ref := range row.References {
			source, _ := d.log.SourceOf(ref.Path)
			refs = append(refs, relaysim.Reference{source, names[1+i]})
		}
		records = append(records, names[0]+"\n"+referenceNames("", relaysim.LineReferences{References: refs}))
		names = names[1+len(refs):]
	}
	slices.Sort(records)
	seen := slices.DeleteFunc(readTruth(t, w.sim.truth), func(e truthEvent) bool { return e.Seq <= w.from.Seq || e.Seq > at.Seq })
	if diff := cmp.Diff(aliveNames(tableOf(t, seen)), records); diff != "" {
		t.Fatalf("%s, generation %d from %v, at %v (-truth +store):\n%.3000s", what, w.generation, w.from, at, diff)
	}
}

// stepKinds is how many kinds of steps there are.
const stepKinds = 5

// step restores something, or switches references off, and lives on.
func (w *referencesWorld) step(kind int) {
	t := w.t
	t.Helper()
	log := filepath.Join(w.dir, "log")
	switch kind {
	case 0:
		w.live("off", false, "--references=off")
		w.live("on after off", true, "--references=on")
	case 1:
		if w.oldLog == "" {
			w.oldLog = filepath.Join(t.TempDir(), "log")
			if err := os.CopyFS(w.oldLog, os.DirFS(log)); err != nil {
				t.Fatal(err)
			}
		}
		w.live("on, after a copy of the log", false, "--references=on")
		removeAll(t, log)
		if err := os.Rename(w.oldLog, log); err != nil {
			t.Fatal(err)
		}
		w.oldLog = ""
		w.live("on, with an older log", true, "--references=on")
	case 2:
		saved := filepath.Join(t.TempDir(), "saved")
		if code, out := millrace(t, "backup", "--data-dir", w.dir, "--to", saved); code != exitOK {
			t.Fatalf("millrace backup: exit code %d\n%s", code, out)
		}
		w.live("on, after a backup", false, "--references=on")
		w.dir = saved
		w.live("on, restored", false, "--references=on")
	case 3:
		if code, out := millrace(t, "intern", "skip-ahead", "--data-dir", w.dir); code != exitOK {
			t.Fatalf("millrace intern skip-ahead: exit code %d\n%s", code, out)
		}
		w.live("on, with UIDs skipped", true, "--references=on")
	default:
		w.live("on", false, "--references=on")
	}
}

// The reference store has the records that are alive, with what they point at, whatever becomes of
// the rest. The log is trimmed and records outlive it; the log, the UID store, or all are restored.
// References are off for a while; frames come again. A new generation begins where it must, and
// only there.
func TestReferencesOutliveAll(t *testing.T) {
	t.Parallel()
	rounds := 1
	if long() {
		rounds = 6
	}
	seed := testSeed(t)
	sim := startRelaysim(t, "--rate", "150", "--seed", strconv.FormatUint(seed, 10), "--churn-every", "4", "--truth-references", "--wait-for-consumer",
		"--window-frames", "2000000", "--window-bytes", strconv.Itoa(1<<30))
	w := &referencesWorld{t: t, rng: rand.New(rand.NewPCG(seed, 7)), sim: sim, dir: filepath.Join(t.TempDir(), "data")}
	w.live("first on", true, "--references=on")
	for range rounds {
		for _, kind := range w.rng.Perm(stepKinds) {
			if w.rng.IntN(2) == 0 {
				sim.do(t, "again?n=200")
			}
			w.step(kind)
		}
	}
	if !w.trimmed {
		t.Log("nothing was trimmed of what the store has seen")
	}
}
