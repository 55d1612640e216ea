package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// The soak runs millrace between a relay that does all that relays do wrong and subscribers that go
// on after each interruption. It kills millrace at random moments, and then holds everything that
// was stored and shown against relaysim's truth file. It works in rounds, each with a log of its
// own, whose plans follow from the seed: make soak SEED=… MINUTES=….

// soakRound is how long one round of a long soak produces events.
const soakRound = 45 * time.Second

// soakPlan is what one round does. Everything in it, and everything drawn during the round,
// follows from seed; when the process gets the CPU does not.
type soakPlan struct {
	seed       uint64
	length     time.Duration
	rate       int
	faultEvery time.Duration // mean time between two faults of the relay
	killEvery  time.Duration // mean life of a process
	hostile    int           // one in so many messages is malformed; 0: none but injected ones
	lossy      bool          // the relay also loses frames and restarts its numbering
	writeLimit bool          // some processes cannot write files beyond a size
	// the disk is full now and then; where no disk can be mounted, writeLimit
	diskFull   bool
	trims      bool // the log keeps little of what it was given
	dictionary bool // the stored dictionary is an operator's
	references bool // events have references
	links      bool // who points at what is answered, while all goes wrong
	graph      bool // sets of accounts are kept in memory
	verify     bool // commits are signed, some are faulty, and they are verified
}

func (p soakPlan) String() string {
	return fmt.Sprintf("seed %d: %v at %d frames/s, a fault every %v, a life of %v, hostile 1/%d, lossy %v, write limit %v, disk full %v, trims %v, own dictionary %v, references %v, links %v, graph %v, verify %v",
		p.seed, p.length, p.rate, p.faultEvery, p.killEvery, p.hostile, p.lossy, p.writeLimit, p.diskFull, p.trims, p.dictionary, p.references, p.links, p.graph, p.verify)
}

// planSoak draws the plan of a round. Kinds of rounds take turns, so that a short soak has all; a
// round is the first one of another seed.
func planSoak(seed uint64, round int, length time.Duration) soakPlan {
	p := soakPlan{seed: seed + uint64(round), length: length}
	rng := rand.New(rand.NewPCG(p.seed, 1))
	p.rate = 500 + rng.IntN(1000)
	p.faultEvery = time.Duration(100+rng.IntN(400)) * time.Millisecond
	p.killEvery = time.Duration(1000+rng.IntN(2000)) * time.Millisecond
	p.hostile = []int{0, 50, 500}[rng.IntN(3)]
	p.trims = p.seed%4 == 0
	p.lossy = p.seed%4 == 1
	p.diskFull = p.seed%4 == 2
	p.writeLimit = p.seed%4 == 3
	p.dictionary = rng.IntN(2) == 0
	p.references = rng.IntN(2) == 0
	p.links = p.references && rng.IntN(2) == 0
	if os.Getenv("MILLRACE_TEST_SOAK_LINKS") != "" {
		p.references, p.links, p.killEvery = true, true, time.Second
	}
	p.graph = p.references && rng.IntN(2) == 0
	if os.Getenv("MILLRACE_TEST_SOAK_VERIFY") != "" {
		// All frames come, though fewer: to sign one takes a hundred times as long.
		p.verify, p.lossy, p.trims, p.rate = true, false, false, p.rate/4
	}
	return p
}

// TestSoak is as much of it as MILLRACE_TEST_SOAK_MINUTES says, from the seed of
// MILLRACE_TEST_SOAK_SEED or one of its own.
func TestSoak(t *testing.T) {
	skipUnderRace(t)
	lasting := os.Getenv("MILLRACE_TEST_SOAK_MINUTES")
	if lasting == "" {
		t.Skip("it is run by make soak")
	}
	minutes, err := strconv.ParseFloat(lasting, 64)
	if err != nil {
		t.Fatalf("MILLRACE_TEST_SOAK_MINUTES: %v", err)
	}
	seed := uint64(rand.Uint32())
	if s := os.Getenv("MILLRACE_TEST_SOAK_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("MILLRACE_TEST_SOAK_SEED: %v", err)
		}
	}
	t.Logf("seed %d: make soak SEED=%d MINUTES=%s", seed, seed, lasting)
	total := newSurvived()
	defer func() {
		if !t.Failed() { // else what failed comes last
			t.Logf("survived, seed %d:\n%s", seed, total)
		}
	}()
	length := min(soakRound, time.Duration(minutes*float64(time.Minute))/6)
	end := time.Now().Add(time.Duration(minutes * float64(time.Minute)))
	for round := 0; time.Now().Before(end) && !t.Failed(); round++ {
		plan := planSoak(seed, round, length)
		ok := t.Run(fmt.Sprintf("round%d", round), func(t *testing.T) {
			t.Log(plan)
			runSoakRound(t, plan, total)
		})
		if !ok {
			t.Fatalf("round %d of seed %d failed", round, seed)
		}
	}
}

func cmpOr(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// survived counts what a soak went through. It is safe for concurrent use.
type survived struct {
	mu     sync.Mutex
	counts map[string]int
	order  []string
	began  time.Time
}

func newSurvived() *survived { return &survived{counts: map[string]int{}, began: time.Now()} }

func (s *survived) add(what string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.counts[what]; !ok {
		s.order = append(s.order, what)
	}
	s.counts[what] += n
}

// String is the summary table.
func (s *survived) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "minutes\t%.1f\n", time.Since(s.began).Minutes())
	sort.Strings(s.order)
	faults := 0
	for _, what := range s.order {
		fmt.Fprintf(w, "%s\t%d\n", what, s.counts[what])
		if strings.HasPrefix(what, "relay fault: ") {
			faults += s.counts[what]
		}
	}
	fmt.Fprintf(w, "relay faults in all\t%d\n", faults)
	_ = w.Flush()
	return b.String()
}
