package references

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Harm writes to the database of s.
func Harm(t *testing.T, s *Store, write func(b *pebble.Batch) error) {
	b := s.db.Pebble().NewBatch()
	if err := write(b); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Commit(b, false); err != nil {
		t.Fatal(err)
	}
}

// RunLinksModel runs the model with links, which are off at times. compare is called with the
// records that are alive and visible, and with all rows.
func RunLinksModel(t *testing.T, seed uint64, compare func(s *Store, visible, rows []Row)) {
	w := newModelWorld(t, seed)
	w.cfg.Links = LinksOn
	w.cfg.hooks.buildRows, w.cfg.hooks.chunkLinks, w.cfg.hooks.checkLinks = 1+w.rng.IntN(5), 1+w.rng.IntN(4), 1+w.rng.Uint64N(2)
	w.paths, w.subjects = 3, 3
	w.links = compare
	w.run(400)
}

// Sweep sweeps everything.
func Sweep(t *testing.T, s *Store) {
	for more := true; more; {
		var err error
		if more, err = s.sweep(); err != nil {
			t.Fatal(err)
		}
	}
}

// BuildBy makes a step of the build take so many rows.
func BuildBy(cfg *Config, rows int) { cfg.hooks.buildRows = rows }

// BuildLinks takes a step of the build.
func BuildLinks(t *testing.T, s *Store) (more bool) {
	more, err := s.buildLinks()
	if err != nil {
		t.Fatal(err)
	}
	return more
}

// FaultStore is faultStore.
func FaultStore(t *testing.T) (*vfs.MemFS, Config) { return faultStore(t) }

// RowKey is the key of a record's row.
func RowKey(s *Store, account, record uint64) []byte {
	return s.codec.recordKey(recordID{account, record})
}

// SplitBy makes a set of more links than so many large, and looks at each addition.
func SplitBy(cfg *Config, links int) { cfg.hooks.chunkLinks, cfg.hooks.checkLinks = links, 1 }

// Ranges are the first bytes of keys.
const (
	RangeMeta, RangeAccount, RangeSweep, RangePurged, RangeRecord = byte(rangeMeta), byte(rangeAccount), byte(rangeSweep), byte(rangePurged), byte(rangeRecord)
)
