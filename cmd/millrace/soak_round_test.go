package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/consume/relaysim"
	"millrace/consume/relaysim/testwait"
	"millrace/translate"
)

const (
	// soakPatience is --epoch-patience in lossy rounds; the relay comes back with its old numbering
	// well within it.
	soakPatience = 5 * time.Second
	// soakNumberings: a restarted numbering begins this much below the one before. So a seq alone
	// shows which numbering it is of, and no numbering reaches the numbers of another.
	soakNumberings = int64(1e9)
	// soakRetention is --retention-bytes where logs are trimmed. It is some 14,000 events, several
	// seconds of them, so that no subscriber is trimmed that is back as soon as the daemon is.
	soakRetention = 6 << 20
	// soakSettle bounds each wait for the daemon to catch up: relays are redialled after up to 30
	// s.
	soakSettle = 3 * time.Minute
	// soakTries is how often a round is tried in which the machine was too slow to know what is
	// right.
	soakTries = 5
)

// round is one round of the soak while it runs.
type round struct {
	t      *testing.T
	plan   soakPlan
	total  *survived
	sim    *simulator
	dir    string
	addr   string
	rng    *rand.Rand // of the processes; the faults have their own
	seen   streams
	losses losses
	floor  int64 // where the newest numbering begins
	now    int64 // where the relay's present one begins

	flags    []string // of every process
	watchers []*watcher

	process *millraceProcess // nil: none runs
	mayFail bool             // the process may end by itself, since it cannot write
	calm    bool             // no watcher is left
	disk    *smallDisk       // nil: the data directory is on the machine's own
}

// losses counts what the relay may have lost.
type losses struct {
	// by numbering (seq / soakNumberings): the window has been moved past this seq
	through   map[int64]int64
	abandoned map[int]bool // truth's epochs that came and went within the patience
}

func runSoakRound(t *testing.T, plan soakPlan, total *survived) {
	for range soakTries {
		if trySoakRound(t, plan, total) {
			return
		}
		total.add("rounds that were tried again, the machine being too slow", 1)
	}
	t.Fatalf("the relay was away for longer than %v, too long to know what is right, in %d tries: the machine is too slow", soakPatience, soakTries)
}

// trySoakRound returns false if nothing can be said since the machine was too slow.
func trySoakRound(t *testing.T, plan soakPlan, total *survived) bool {
	r := &round{
		t: t, plan: plan, total: total, addr: freeAddr(t),
		rng:    rand.New(rand.NewPCG(plan.seed, 2)),
		losses: losses{through: map[int64]int64{}, abandoned: map[int]bool{}},
		floor:  1000 * soakNumberings, now: 1000 * soakNumberings,
	}
	dir, err := os.MkdirTemp("", "millrace-soak")
	if err != nil {
		t.Fatal(err)
	}
	r.dir = filepath.Join(dir, "data")
	defer func() {
		if t.Failed() {
			t.Logf("the failed plan is %v\nits data directory is kept: %s", plan, dir)
			return
		}
		_ = os.RemoveAll(dir)
	}()
	if plan.diskFull {
		r.disk = mountDisk(t, r.dir)
		r.plan.writeLimit = r.disk == nil
	}
	r.flags = append(r.flags, "--memory", memoryOf(int(plan.seed%2)))
	if plan.lossy {
		r.flags = append(r.flags, "--epoch-patience", soakPatience.String())
	}
	if plan.dictionary {
		r.flags = append(r.flags, "--zstd-dictionary", writeSoakDictionary(t, dir))
	}
	if plan.references {
		r.flags = append(r.flags, "--references=on")
	}
	if plan.links {
		r.flags = append(r.flags, "--links")
	}
	world := 20_000
	if plan.links {
		world = 500 // few posts, so that some have links in several chunks
	}
	if plan.graph {
		r.flags = append(r.flags, "--graph", "--graph-memory", "64MiB")
	}
	var signed []string
	if plan.verify {
		world = 2000
		signed = []string{"--signed", "--faulty-every", "20"}
	}
	r.sim = startRelaysim(t, append(signed, "--seed", strconv.FormatUint(plan.seed, 10), "--rate", strconv.Itoa(plan.rate), "--wait-for-consumer",
		"--generate", strconv.Itoa(world), "--accounts", strconv.Itoa(world/5), "--first-seq", strconv.FormatInt(r.floor+1, 10), "--churn-every", "10", "--truth-sync", "--hostile-every", strconv.Itoa(plan.hostile),
		"--outdated-cursor-info="+strconv.FormatBool(plan.seed%2 == 0), "--future-cursor-error="+strconv.FormatBool(plan.seed%4 < 2))...)
	if plan.verify {
		r.flags = append(r.flags, "--verify=flag", "--plc", r.sim.plc())
	}

	r.watchers = newWatchers(r)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watching sync.WaitGroup
	for _, w := range r.watchers {
		watching.Go(func() { w.run(ctx) })
	}
	observer := &linkObserver{r: r}
	if plan.links {
		watching.Go(func() { observer.run(ctx) })
	}
	if !r.live() {
		cancel()
		watching.Wait()
		r.kill()
		r.sim.do(t, "quiet?for=1h")
		return false
	}
	r.settle()
	truth, log, gaps := r.check()
	for _, w := range r.watchers {
		w.waitFor(t, log, gaps)
	}
	cancel()
	watching.Wait()
	for _, w := range r.watchers {
		w.check(t, log, gaps)
		total.add("events checked, live", len(w.events))
	}
	if plan.trims {
		r.replays(r.trim(log))
	} else {
		r.replays(log)
	}
	if plan.verify {
		r.checkVerified(log)
	}
	if plan.links {
		r.checkLinks(observer, log)
	}
	if plan.graph {
		r.checkGraph(log)
	}
	r.stop()
	r.verify(log)
	total.add("rounds", 1)
	total.add("events in the logs", len(log))
	total.add("events that the relay lost, all within gaps", len(truth)-len(log))
	total.add("gaps", len(gaps))
	return true
}

// verify checks the stores of the stopped daemon.
func (r *round) verify(log []truthEvent) {
	t := r.t
	t.Helper()
	if code, out := millrace(t, "verify", "--data-dir", r.dir); code != exitOK {
		t.Fatalf("millrace verify: exit code %d\n%s", code, out)
	}
	if code, out := millrace(t, "intern", "verify", "--data-dir", r.dir); code != exitOK || !strings.Contains(out, " 0 problems") {
		t.Fatalf("millrace intern verify: exit code %d\n%s", code, out)
	}
	if r.plan.links {
		if code, out := millrace(t, "links", "verify", "--data-dir", r.dir); code != exitOK {
			t.Fatalf("millrace links verify: exit code %d\n%s", code, out)
		}
	}
	if r.plan.references {
		checkRecordTable(t, r.dir, log)
		r.total.add("rounds with references", 1)
	}
}

// live is the time in which everything goes wrong. It returns false if the machine was too slow for
// that.
func (r *round) live() bool {
	end := time.Now().Add(r.plan.length)
	r.start(nil)
	r.catchUp() // until something is committed a restart begins live, and misses what was before
	ctx, cancel := context.WithDeadline(r.t.Context(), end)
	defer cancel()
	var failing sync.WaitGroup
	failing.Go(func() { r.relayFails(ctx) })
	defer failing.Wait()
	for time.Now().Before(end) && !r.t.Failed() {
		if r.plan.lossy && !r.relayLoses() {
			return false
		}
		life := time.Duration(r.rng.ExpFloat64() * float64(r.plan.killEvery))
		r.sleep(min(life, time.Until(end)))
		r.end()
		if r.rng.IntN(4) == 0 { // and stays away for a while
			r.sleep(time.Duration(r.rng.Int64N(int64(time.Second))))
		}
		r.disk.fillOrEmpty(r)
		r.start(r.wrapper())
	}
	return true
}

// wrapper is what the next process is started by. Now and then it sets a limit for the size of its
// files. That makes a write fail in the middle as a full disk does.
func (r *round) wrapper() []string {
	if !r.plan.writeLimit || r.rng.IntN(2) == 0 {
		return nil
	}
	return []string{"sh", "-c", `ulimit -f "$1"; shift; exec "$@"`, "sh", strconv.Itoa(200 + r.rng.IntN(4000))}
}

// start starts the daemon.
func (r *round) start(wrapper []string) {
	flags := r.flags
	if r.plan.trims {
		limit := soakRetention
		if !r.calm && !r.together() {
			limit *= 16
		}
		flags = append(slices.Clone(flags), "--retention-bytes", strconv.Itoa(limit))
	}
	r.process = startMillraceUnder(r.t, wrapper, r.sim.url, r.dir, r.addr, flags...)
	r.mayFail = wrapper != nil || r.disk.isFull()
	r.total.add("processes", 1)
	if r.plan.links {
		r.total.add("processes with links", 1)
	}
	if wrapper != nil {
		r.total.add("processes with a limit of what they may write", 1)
	}
}

// sleep waits and watches over the process.
func (r *round) sleep(d time.Duration) {
	exited := make(chan struct{})
	if r.process != nil {
		exited = r.process.exited
	}
	select {
	case <-time.After(max(d, 0)):
	case <-exited:
		r.exited()
	}
}

// exited judges the end of a process that ended by itself.
func (r *round) exited() {
	p := r.process
	r.process = nil
	said := p.stderr.String()
	if !r.mayFail || p.cmd.ProcessState.Success() || !strings.Contains(said, "file too large") && !strings.Contains(said, "no space left") {
		r.t.Errorf("the daemon ended by itself: %v\n%.4000s", p.cmd.ProcessState, said)
		return
	}
	r.total.add("stops on failed writes", 1)
}

// take returns the process, which must end now, and nil if none runs, or it has ended by itself.
func (r *round) take() *millraceProcess {
	p := r.process
	if p == nil {
		return nil
	}
	select {
	case <-p.exited:
		r.exited()
		return nil
	default:
	}
	r.process = nil
	return p
}

// kill ends the process with SIGKILL.
func (r *round) kill() {
	if p := r.take(); p != nil {
		p.kill()
		r.killed("kill -9")
	}
}

// killed counts a kill.
func (r *round) killed(how string) {
	r.total.add(how, 1)
	if r.plan.links {
		r.total.add("kills with links", 1)
	}
}

// end ends the process in one of the ways in which processes end.
func (r *round) end() {
	p := r.take()
	if p == nil {
		return
	}
	switch n := r.rng.IntN(8); {
	case n == 0:
		r.terminate(p)
	case n == 1:
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		p.lives(time.Duration(r.rng.Int64N(int64(50 * time.Millisecond))))
		p.kill()
		r.killed("kill -9 while stopping")
	default:
		p.kill()
		r.killed("kill -9")
	}
}

// terminate is SIGTERM, after which the daemon must end cleanly.
func (r *round) terminate(p *millraceProcess) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(patience):
		r.t.Errorf("the daemon did not stop within %v of SIGTERM", patience)
		p.kill()
		return
	}
	if state := p.cmd.ProcessState; !state.Success() && !r.mayFail && state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		// A signal that comes before the daemon has asked for it ends it at once.
		r.t.Errorf("after SIGTERM: %v\n%.4000s", p.cmd.ProcessState, p.stderr)
	}
	r.total.add("SIGTERM", 1)
}

func (r *round) stop() {
	r.terminate(r.process)
	r.process = nil
}

// settle ends the stream and waits until the log has all of it.
func (r *round) settle() {
	if r.process != nil {
		r.process.kill()
	}
	r.disk.empty(r.t)
	r.start(nil)
	r.catchUp() // so that nothing can be lost after what comes last
	r.sim.do(r.t, "quiet?for=1h")
	r.catchUp()
}

// catchUp waits until the log has what is now the truth's last event, of the relay's present
// numbering.
func (r *round) catchUp() {
	r.t.Helper()
	last := int64(0)
	if testwait.Becomes(soakSettle, func() bool {
		if last == 0 || numbering(last) != numbering(r.now) {
			last = r.lastTrueSeq()
		}
		if c, err := r.cursors(); err == nil && c.Newest != nil && numbering(last) == numbering(r.now) {
			p, err := translate.ParsePosition(c.Newest.Cursor)
			if err != nil {
				r.t.Fatal(err)
			}
			if numbering(p.Seq) == numbering(last) && p.Seq >= last {
				return true
			}
		}
		select {
		case <-r.process.exited:
			r.exited()
			r.t.Fatal("no daemon is left")
		default:
		}
		return false
	}) {
		return
	}
	c, err := r.cursors()
	r.process.kill()
	r.t.Fatalf("the log did not reach seq %d within %v: cursors %+v, %v\n%.8000s", last, soakSettle, c.Newest, err, r.process.stderr)
}

// lastTrueSeq is that of the truth file's last whole line, 0 if there is none yet.
func (r *round) lastTrueSeq() int64 {
	raw, err := os.ReadFile(r.sim.truth)
	if err != nil {
		r.t.Fatal(err)
	}
	raw = raw[:bytes.LastIndexByte(raw, '\n')+1]
	if len(raw) == 0 {
		return 0
	}
	var line struct{ Seq int64 }
	if err := json.Unmarshal(raw[bytes.LastIndexByte(raw[:len(raw)-1], '\n')+1:], &line); err != nil {
		r.t.Fatal(err)
	}
	return line.Seq
}

// soakCursors is what /cursors answers.
type soakCursors struct {
	Newest *struct {
		TimeUS int64 `json:"time_us"`
		Cursor string
	}
	Gaps []soakGap
}

type soakGap struct{ From, To string }

func (r *round) cursors() (c soakCursors, err error) {
	resp, err := http.Get("http://" + r.addr + "/cursors")
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	return c, json.NewDecoder(resp.Body).Decode(&c)
}

// relayFault is something that the relay does wrong without losing anything.
type relayFault struct {
	name string
	draw func(rng *rand.Rand) url.Values
}

func whole(name string, least, most int) func(*rand.Rand) url.Values {
	return func(rng *rand.Rand) url.Values {
		return url.Values{name: {strconv.Itoa(least + rng.IntN(most-least+1))}}
	}
}

func lasting(most time.Duration) func(*rand.Rand) url.Values {
	return func(rng *rand.Rand) url.Values {
		return url.Values{"for": {time.Duration(rng.Int64N(int64(most))).Round(time.Millisecond).String()}}
	}
}

// relayFaults are all of them but injected messages, whose kinds relaysim names.
var relayFaults = []relayFault{
	{"disconnect", whole("after", 0, 20_000)},
	{"too-slow", func(*rand.Rand) url.Values { return nil }},
	{"stall", lasting(500 * time.Millisecond)},
	{"drip", func(rng *rand.Rand) url.Values {
		q := lasting(500 * time.Millisecond)(rng)
		q.Set("bytes", strconv.Itoa(1000+rng.IntN(100_000)))
		return q
	}},
	{"quiet", lasting(500 * time.Millisecond)},
	{"jump", whole("by", 1, 5000)},
	{"repeat", whole("n", 1, 200)},
	{"burst", whole("n", 1, 2000)},
	{"again", whole("n", 1, 500)},
}

// hostileKindNames returns the malformed messages that the relay knows.
func hostileKindNames() (names []string) {
	var out strings.Builder
	relaysim.ListHostile(&out)
	for line := range strings.Lines(out.String()) {
		names = append(names, strings.Fields(line)[0])
	}
	return names
}

// relayFails makes the relay misbehave until ctx ends.
func (r *round) relayFails(ctx context.Context) {
	kinds := hostileKindNames()
	rng := rand.New(rand.NewPCG(r.plan.seed, 3))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(rng.ExpFloat64() * float64(r.plan.faultEvery))):
		}
		f := relayFault{"inject", func(rng *rand.Rand) url.Values { return url.Values{"kind": {kinds[rng.IntN(len(kinds))]}} }}
		if n := rng.IntN(len(relayFaults) + 1); n < len(relayFaults) {
			f = relayFaults[n]
		}
		if _, err := r.sim.act(f.name, f.draw(rng)); err != nil {
			r.t.Errorf("relaysim: %v", err)
			return
		}
		r.total.add("relay fault: "+f.name, 1)
	}
}

// relayLoses lets the relay lose frames, or restart its numbering, now and then. It returns false
// if a numbering that came and went was there for so long that the daemon may have followed it.
func (r *round) relayLoses() bool {
	act := func(name string, q url.Values) (result struct {
		Epoch       int
		LostThrough int64 `json:"lost_through"`
	}) {
		raw, err := r.sim.act(name, q)
		if err == nil {
			err = json.Unmarshal(raw, &result)
		}
		if err != nil {
			r.t.Fatalf("relaysim: %v", err)
		}
		r.total.add("relay fault: "+name, 1)
		return result
	}
	switch r.rng.IntN(6) {
	case 0, 1:
		lost := act("forget", whole("keep", 0, 500)(r.rng)).LostThrough
		r.losses.through[lost/soakNumberings] = max(r.losses.through[lost/soakNumberings], lost)
	case 2:
		began := time.Now()
		r.floor -= soakNumberings
		epoch := act("restart-numbering", url.Values{"after": {strconv.FormatInt(r.floor, 10)}}).Epoch
		r.losses.abandoned[epoch] = true
		r.sleep(time.Duration(r.rng.Int64N(int64(soakPatience / 4))))
		if r.rng.IntN(2) == 0 {
			r.kill() // a clean stop may take longer than there is time for
			r.start(nil)
		}
		act("comeback", nil)
		r.sleep(time.Second) // in which it reads what it had of that numbering
		if took := time.Since(began); took > soakPatience*3/4 {
			r.t.Logf("the relay was away for %v", took)
			return false
		}
	case 3:
		if r.process == nil {
			return true
		}
		r.floor -= soakNumberings
		r.now = r.floor
		act("restart-numbering", url.Values{"after": {strconv.FormatInt(r.floor, 10)}})
		act("again", whole("n", 500, 4000)(r.rng))
		if r.rng.IntN(2) == 0 {
			r.sleep(time.Duration(r.rng.Int64N(int64(soakPatience))))
			r.kill()
			r.start(nil)
		}
		r.catchUp() // or the next restart would hide this one
	}
	return true
}

// act asks for an action of relaysim's admin endpoints and returns its answer.
func (s *simulator) act(name string, q url.Values) ([]byte, error) {
	resp, err := http.Post(s.admin+name+"?"+q.Encode(), "", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s: %s", name, q.Encode(), resp.Status, &body)
	}
	return body.Bytes(), nil
}
