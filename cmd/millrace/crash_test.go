package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/gorilla/websocket"

	"millrace/replay"
)

// machine is what a daemon of this process runs on while its power fails, its disk fails and its
// clock steps. It outlives the daemons.
type machine struct {
	t      *testing.T
	rng    *rand.Rand
	relay  string
	dir    string
	flags  []string   // further ones
	query  string     // what subscribers ask for beside extended events
	disk   *vfs.MemFS // forgets at a power loss what was not synced
	offset atomic.Int64
	seen   streams

	lives  int // so far
	cursor string
	shown  []truthEvent // what a subscriber saw, and no later life may take back
}

var errBadSector = errors.New("bad sector")

// watchedFS makes new files where Pebble wants to use old ones again: errorfs does not see what
// happens to those.
type watchedFS struct{ *errorfs.FS }

func (fs watchedFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.Remove(oldname); err != nil {
		return nil, err
	}
	return fs.Create(newname, category)
}

// orderedFS makes the names in a directory durable before it makes a marker there. Pebble counts on
// that, as ext4, XFS and Btrfs keep it. A marker must not outlive the name of the manifest that was
// synced before it was made.
type orderedFS struct{ *vfs.MemFS }

func (fs orderedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(filepath.Base(name), "marker.") {
		dir, err := fs.OpenDir(filepath.Dir(name))
		if err != nil {
			return nil, err
		}
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
			return nil, err
		}
	}
	return fs.MemFS.Create(name, category)
}

// life is one daemon's time on the machine. A daemon whose disk has failed does not wait for its
// stores, which may sync on when it is over. What sync reads is never written after the start.
type life struct {
	*machine
	cutAt  int64        // the power fails at the sync of this number; 0: it does not
	failAt int64        // the syncs of the log from this number on fail; 0: none does
	syncs  atomic.Int64 // so far

	once    sync.Once
	ended   chan struct{} // closed at the power loss, by once
	clone   *vfs.MemFS    // what is left then; not to be read before
	atPoint int           // how many events had been shown before

	mu     sync.Mutex
	events []truthEvent // that its subscriber was shown
}

// sync is called before each sync of either store.
func (l *life) sync(op errorfs.Op) error {
	if op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData && op.Kind != errorfs.OpFileSyncTo {
		return nil
	}
	n := l.syncs.Add(1)
	if l.failAt > 0 && n >= l.failAt && strings.HasPrefix(op.Path, filepath.Join(l.dir, "log")) && strings.HasSuffix(op.Path, ".log") &&
		// there Pebble ends the process, which is this one
		!bytes.Contains(debug.Stack(), []byte("rotateWAL")) {
		return errBadSector
	}
	if l.cutAt > 0 && n == l.cutAt {
		l.powerLoss(n)
	}
	return nil
}

// powerLoss notes what was shown, and then what the disk holds. What is random in it follows from
// at.
func (l *life) powerLoss(at int64) {
	l.once.Do(func() {
		l.mu.Lock()
		l.atPoint = len(l.events)
		l.mu.Unlock()
		l.clone = l.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[at%3], RNG: rand.New(rand.NewPCG(uint64(at), 4))})
		close(l.ended)
	})
}

// subscribe keeps what one subscriber is shown until the connection ends.
func (l *life) subscribe(conn *websocket.Conn) {
	for {
		_, msg, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if !isEvent(msg) {
			continue
		}
		e := l.seen.parse(l.t, string(msg))
		l.mu.Lock()
		l.events = append(l.events, e)
		l.mu.Unlock()
	}
}

// live runs a daemon until its power goes, its disk fails, or it is stopped when until returns.
func (l *life) live(until func(addr string, ended <-chan struct{})) {
	t := l.t
	t.Helper()
	cfg := serveConfig(t, append([]string{"--relay", l.relay, "--data-dir", l.dir, "--listen", "127.0.0.1:0",
		"--metrics-listen", "", "--memory", memoryOf(l.lives), "--min-free-disk", "0"}, l.flags...))
	l.lives++
	cfg.hooks = testHooks{
		now: func() time.Time { return time.Now().Add(time.Duration(l.offset.Load())) },
		fs:  watchedFS{errorfs.Wrap(orderedFS{l.disk}, errorfs.InjectorFunc(l.sync))},
	}
	d, err := newDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		if l.failAt == 0 || !errors.Is(err, replay.ErrFailed) && !errors.Is(err, errBadSector) {
			t.Fatalf("start: %v", err)
		}
		l.powerLoss(l.failAt)
		l.end()
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- d.run(ctx) }() // waited for below
	addr := d.publicListener.Addr().String()
	conn, resp, err := websocket.DefaultDialer.Dial("ws://"+addr+"/subscribe?extended=true"+l.query+"&cursor="+l.cursor, nil)
	var watching sync.WaitGroup
	if err == nil {
		watching.Go(func() { l.subscribe(conn) })
	} else if l.failAt == 0 {
		body, _ := io.ReadAll(resp.Body)
		cancel()
		t.Fatalf("subscribe after %s: %v: %s (run: %v)", l.cursor, err, body, <-ran)
	}
	until(addr, l.ended)
	if l.failAt == 0 {
		cancel()
	}
	select {
	case err = <-ran:
	case <-time.After(time.Minute):
		stacks := make([]byte, 1<<20)
		t.Fatalf("the daemon did not end within a minute (cut at sync %d, failing from %d on, of %d)\n%s",
			l.cutAt, l.failAt, l.syncs.Load(), stacks[:runtime.Stack(stacks, true)])
	}
	switch {
	case l.failAt > 0 && !errors.Is(err, replay.ErrFailed):
		t.Fatalf("with a failed sync run returned %v", err)
	case l.failAt == 0 && err != nil:
		t.Fatalf("run: %v", err)
	}
	if conn != nil {
		conn.Close()
	}
	watching.Wait()
	if l.failAt > 0 {
		l.powerLoss(l.failAt) // after the disk has failed
	}
	l.end()
}

// end hands what is left to the machine.
func (l *life) end() {
	if l.clone != nil {
		l.disk = l.clone
		l.events = l.events[:l.atPoint]
	}
	if n := len(l.events); n > 0 {
		l.cursor = l.events[n-1].position(&l.seen).String()
		l.shown = append(l.shown, l.events...)
	}
}

// At random, the power goes at any sync of either store, the log cannot be synced, and the clock
// steps by up to two hours. The log is exact, its stamps increase, its UIDs are a bijection, and
// nothing that a subscriber was shown is ever taken back.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	testPowerLoss(t, "")
}

// The same with references: the reference store loses power too, often between the log's commit and
// its own. Each create, update and delete has the references that the truth has for it.
func TestPowerLossReferences(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	checkReferences(t, "the log", testPowerLoss(t, "&references=true", "--references=on"))
}

func testPowerLoss(t *testing.T, query string, flags ...string) (got []truthEvent) {
	t.Helper()
	lives := 6
	if long() {
		lives = 60
	}
	rng := rand.New(rand.NewPCG(testSeed(t), 0))
	sim := startRelaysim(t, "--rate", "250", "--churn-every", "5", "--wait-for-consumer", "--window-frames", "2000000", "--window-bytes", strconv.Itoa(1<<30))
	m := &machine{t: t, rng: rng, relay: sim.url, dir: filepath.Join(t.TempDir(), "data"), disk: vfs.NewCrashableMem(), cursor: "0", flags: flags, query: query}

	// The first one commits something: before, a restart begins live.
	(&life{machine: m, ended: make(chan struct{})}).live(func(addr string, _ <-chan struct{}) {
		readFirst(t, addr, 1)
	})
	cuts, fails, steps := 0, 0, 0
	for i := range lives {
		l := &life{machine: m, ended: make(chan struct{})}
		switch n := 1 + rng.Int64N(1+int64(rng.IntN(500))); i % 4 {
		case 2:
			l.failAt = n
			fails++
		default:
			l.cutAt = n
			cuts++
		}
		l.live(func(_ string, ended <-chan struct{}) {
			for {
				select {
				case <-ended:
					return
				case <-time.After(time.Duration(1+rng.IntN(25)) * time.Millisecond):
				}
				if l.failAt > 0 && l.syncs.Load() >= l.failAt {
					return
				}
				m.offset.Store(rng.Int64N(int64(4*time.Hour)) - int64(2*time.Hour))
				steps++
			}
		})
	}
	want := sim.settle(t)
	(&life{machine: m, ended: make(chan struct{})}).live(func(addr string, _ <-chan struct{}) {
		got = readAll(t, addr, "cursor=0"+query, len(want))
	})
	checkExact(t, "the log", got, want)
	checkUIDs(t, got)
	if len(m.shown) > len(got) {
		t.Fatalf("%d events were shown, the log has %d", len(m.shown), len(got))
	}
	if err := sameEvents(m.shown, got[:len(m.shown)]); err != nil {
		t.Fatalf("what was shown is not what the log has (it was published before it was durable): %v", err)
	}
	t.Logf("%d events exact, %d of them shown, after %d power losses, %d failed syncs, %d clock steps", len(got), len(m.shown), cuts, fails, steps)
	return got
}
