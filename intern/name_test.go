package intern

import (
	"fmt"
	"testing"
	"time"

	"millrace/intern/kv/simkv"
)

// TestNewCollections has all workers meet the same new collections at once: they number them
// without conflicts.
func TestNewCollections(t *testing.T) {
	store := simkv.New(simkv.Config{CommitLatency: time.Millisecond})
	in := openOn(t, store, Config{Workers: 32})
	for round := range 5 {
		var batch []string
		for i := range 100 {
			batch = append(batch, fmt.Sprintf("at://did:web:%d.com/a.b.c%d/x", i, round))
		}
		resolve(t, in, batch...)
	}
	if stats := store.Stats(); stats.Conflicts > 0 {
		t.Errorf("%d conflicts of the interner with itself", stats.Conflicts)
	}
	checkStore(t, store, nil)
}
