package relaysim

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
)

// worldConfig says what world to generate.
type worldConfig struct {
	seed     uint64
	accounts int
	begin    time.Time // of the first frame
	truth    bool      // make the truth of each frame too
	// the world's time does not pass this; nil: it goes its own way
	now func() time.Time
}

// worldStep is the mean time between two generated frames.
const worldStep = time.Millisecond

// world is a seeded set of accounts and what they do. What it generates is a function of its
// configuration alone.
type world struct {
	cfg        worldConfig
	population *population
	rng        *rand.Rand
	accounts   map[int]*account
	active     []*account // in the frames that are being made, in order of their first act there
	posts      []postRef  // recent ones, for likes and replies
	words      *lexicon
	now        time.Time
	lastTID    uint64
}

// postRef points to a post.
type postRef struct{ uri, cid string }

// recentPosts bounds how many generated posts are likely to be liked.
const recentPosts = 512

// act is one frame to come of an account.
type act struct {
	frame  int // index in the frames that are being made
	kind   actKind
	time   time.Time
	ops    []op
	status string // account acts: "" is active
}

// op is one change of a record.
type op struct {
	path   string
	record []byte // nil: delete
}

// newWorld returns the world in which nothing has happened yet.
func newWorld(cfg worldConfig) *world {
	return &world{
		cfg: cfg, rng: newRand(cfg.seed, "world"), accounts: make(map[int]*account), now: cfg.begin, words: newLexicon(),
		population: newPopulation(cfg.seed, cfg.accounts, newRand(cfg.seed, "accounts")),
	}
}

// frames makes the world's next n frames, as templates.
//
// First the acts are drawn one after another, with the records, since records point to each other.
// Then each account's acts become commits: that is independent of all other accounts, and runs in
// parallel.
func (w *world) frames(n int) ([]*template, error) {
	w.active = w.active[:0]
	for i := range n {
		w.now = w.now.Add(time.Duration(w.rng.ExpFloat64() * float64(worldStep)))
		if w.cfg.now != nil {
			if now := w.cfg.now(); w.now.After(now) {
				w.now = now
			}
		}
		number := w.population.draw()
		a := w.accounts[number]
		if a == nil {
			a = newAccount(w, number)
			w.accounts[number] = a
		}
		if len(a.acts) == 0 {
			w.active = append(w.active, a)
		}
		next := w.draw(a)
		next.frame, next.time = i, w.now
		a.acts = append(a.acts, next)
	}
	templates := make([]*template, n)
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, a := range w.active {
		group.Go(func() error {
			if err := a.perform(templates, w.cfg.truth); err != nil {
				return fmt.Errorf("account %s: %w", a.did, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return templates, nil
}

// somePost returns a post to point to: often a recent one, else one from before the world began.
func (w *world) somePost() postRef {
	if len(w.posts) > 0 && w.rng.IntN(3) > 0 {
		return w.posts[w.rng.IntN(len(w.posts))]
	}
	author := w.population.did(w.population.draw())
	rkey := w.pastTID()
	return postRef{uri: "at://" + author + "/app.bsky.feed.post/" + rkey, cid: blockCID([]byte(author + rkey)).String()}
}

// drawDID returns the DID of an account of the world.
func (w *world) drawDID() string { return w.population.did(w.population.draw()) }

// tid returns a TID of about now, as a record key: above all before.
func (w *world) tid() string {
	w.lastTID = max(w.lastTID+1, uint64(w.now.UnixMicro())<<10|uint64(w.rng.IntN(1<<10)))
	return makeTID(w.lastTID).String()
}

// pastTID returns a TID of the year before the world began.
func (w *world) pastTID() string {
	ago := time.Duration(1+w.rng.IntN(365*24*3600)) * time.Second
	micros := w.cfg.begin.Add(-ago).UnixMicro() + int64(w.rng.IntN(1_000_000))
	return makeTID(uint64(micros)<<10 | uint64(w.rng.IntN(1<<10))).String()
}

// timestamp returns the time of now as records have it.
func (w *world) timestamp() string { return w.now.UTC().Format(timeLayout) }

// chance is true in one of n cases.
func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }
