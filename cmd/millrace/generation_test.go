package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/dict"
	"millrace/replay"
	"millrace/replay/references"
)

// TestWhyNewGeneration: a reference store goes on if it has the log's basis and is neither behind
// what the log has nor beyond its end.
func TestWhyNewGeneration(t *testing.T) {
	dicts, err := dict.NewRegistry(dict.BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	defer dicts.Close()
	fs := vfs.NewMem()
	log, err := replay.Open(replay.Config{Dir: "log", FS: fs, Relay: "relay.example.com", Retention: time.Hour, References: true, Dictionaries: dicts})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	store, err := references.Open(references.Config{Dir: "refs", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	d := &daemon{log: log, refs: store}
	end := log.Progress()
	at := func(seq int64) replay.EpochEnd { return replay.EpochEnd{Epoch: end.Epoch, Seq: end.Seq + seq} }
	cfg, other := &config{}, &config{collections: []string{"a.b.c"}}
	basis := cfg.referencesBasis("store", 7)
	if why := d.whyNewGeneration(basis, at(0)); !strings.Contains(why, "none") {
		t.Errorf("without a generation: %q", why)
	}
	for _, tc := range []struct {
		basis       string
		store, from int64 // from the end of the log
		why         string
	}{
		{basis, 0, 0, ""},
		{other.referencesBasis("store", 7), 0, 0, "--collections"},
		{cfg.referencesBasis("store", 77), 0, 0, "UIDs were skipped"},
		{other.referencesBasis("store2", 7), 0, 0, "the UID store is another"},
		{basis, 0, 1, "references were off"},
		{basis, 1, 0, "older"},
	} {
		if err := store.Begin(basis, at(tc.store)); err != nil {
			t.Fatal(err)
		}
		why := d.whyNewGeneration(tc.basis, at(tc.from))
		if (why == "") != (tc.why == "") || !strings.Contains(why, tc.why) {
			t.Errorf("basis %s, the store at %d, the log from %d on: %q", tc.basis, tc.store, tc.from, why)
		}
	}
}
