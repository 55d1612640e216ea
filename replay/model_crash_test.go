package replay

import (
	"math/rand/v2"
	"runtime"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/dict"
)

// restart closes the log and opens it again, now and then with the other dictionary stored.
func (w *world) restart() {
	if err := w.log.Close(); err != nil {
		w.t.Fatal(err)
	}
	if w.rng.IntN(3) == 0 {
		a, b := dict.BuiltIn(), otherDictionary(w.t)
		if w.cfg.Dictionaries.Stored().ID() == a.ID() {
			a, b = b, a
		}
		r, err := dict.NewRegistry(a, b)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(r.Close)
		w.cfg.Dictionaries = r
	}
	w.open()
}

// crash goes on with what is left after a crash now. Trims are not synced and may be undone.
func (w *world) crash() {
	w.fs = w.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(101), RNG: rand.New(rand.NewPCG(w.rng.Uint64(), 2))})
	_ = w.log.Close()
	w.cfg.FS = w.fs
	w.open()
	w.adoptFloor()
}

// adoptFloor sets the model's floor to the log's, which must be one it had.
func (w *world) adoptFloor() {
	m := w.m
	s := w.log.snap.Load()
	for i := 0; i <= m.first; i++ {
		at := int64(0)
		if i > 0 {
			at = m.blocks[i-1].last().timeUS
		}
		if s.Floor.TimeUS == at {
			m.first = i
			return
		}
	}
	w.t.Fatalf("after a crash the floor is %d, it was never there", s.Floor.TimeUS)
}

// crashDuringAppend takes a crash's picture somewhere within an Append, and looks at it.
func (w *world) crashDuringAppend() {
	before := w.m.clone()
	pictures := make(chan *vfs.MemFS)
	turns := w.rng.IntN(400)
	cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: w.rng.IntN(101), RNG: rand.New(rand.NewPCG(w.rng.Uint64(), 3))}
	fs := w.fs
	go func() {
		for range turns {
			runtime.Gosched()
		}
		pictures <- fs.CrashClone(cfg)
	}()
	w.append()
	after := w.m
	other := *w
	other.fs = <-pictures
	other.cfg.FS = other.fs
	other.open()
	defer other.log.Close()
	other.m = after.clone()
	if p := other.log.Progress(); p.Seq == before.seq && p.Epoch == before.epoch {
		other.m = before
	}
	other.adoptFloor()
	other.check()
	other.readAll()
}
