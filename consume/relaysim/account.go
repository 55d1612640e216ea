package relaysim

import (
	"slices"
	"time"

	"millrace/consume/relaysim/cbor"
)

// account is one account of the world. While acts are drawn it is what its records are; perform
// turns the acts into frames.
type account struct {
	number int
	did    string
	handle string
	langs  []string
	// records from before the world began; their CIDs are known, they themselves are not
	history []op

	paths    []string // of the records that exist, for deletes and updates
	profile  bool
	inactive bool // as last announced
	acts     []act
	repo     *repository // nil before the first frame
}

// newAccount makes an account with a past.
func newAccount(w *world, n int) *account {
	a := &account{number: n, did: w.population.did(n), langs: w.someLangs()}
	a.handle = w.someHandle()
	// Busy accounts have longer pasts; most have hardly any.
	records := 3 + int(w.rng.ExpFloat64()*12)
	if n < 50 {
		records += 100
	}
	collections := []string{"app.bsky.feed.like", "app.bsky.feed.like", "app.bsky.feed.post", "app.bsky.feed.repost", "app.bsky.graph.follow"}
	for range records {
		a.past(collections[w.rng.IntN(len(collections))] + "/" + w.pastTID())
	}
	if !w.chance(3) {
		a.profile = true
		a.past("app.bsky.actor.profile/self")
	}
	return a
}

// past adds a record from before the world began.
func (a *account) past(path string) {
	a.history = append(a.history, op{path: path})
	a.paths = append(a.paths, path)
}

// takePath removes a record from those that exist, and returns its path; false: there is none.
func (a *account) takePath(w *world) (string, bool) {
	if len(a.paths) == 0 {
		return "", false
	}
	i := w.rng.IntN(len(a.paths))
	path := a.paths[i]
	if path == "app.bsky.actor.profile/self" {
		a.profile = false
	}
	a.paths = slices.Delete(a.paths, i, i+1)
	return path, true
}

// create returns an op that creates a record, which exists from then on.
func (a *account) create(collection, rkey string, record map[string]any) op {
	record["$type"] = collection
	path := collection + "/" + rkey
	a.paths = append(a.paths, path)
	return op{path: path, record: cbor.Append(nil, record)}
}

// rev returns a rev for the account's commit at t, above the one before.
func (a *account) rev(last uint64, t time.Time) uint64 {
	clockID := Mix(uint64(a.number)) & 0x3ff
	n := uint64(t.UnixMicro())<<10 | clockID
	if n <= last {
		n = last + 1<<10
	}
	return n
}
