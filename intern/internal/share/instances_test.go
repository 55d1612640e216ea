package share

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// storeOnly is an Interner that has transactions, and no strings.
type storeOnly struct {
	Interner
	store kv.Store
}

func (s storeOnly) Attempt(ctx context.Context, _ time.Duration, fn func(context.Context, kv.Txn) error) error {
	return kv.Once(ctx, s.store, func(txn kv.Txn) error { return fn(ctx, txn) })
}

func (s storeOnly) Sequences() []uint32 { return []uint32{3} }

func newTestInstances(t *testing.T, store kv.Store, id uint64) *instances {
	t.Helper()
	m := NewMetrics(nil)
	return newInstances(Config{ID: id, Interner: storeOnly{store: store}, Timing: DefaultTiming(),
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Metrics: m}, func(time.Duration) {})
}

func TestRecord(t *testing.T) {
	value := appendRecord(nil, 77, []uint32{1, 16383, 5})
	got, err := parseRecord(appendKey(nil, 9), value)
	if want := (record{9, 77, []uint32{1, 16383, 5}}); err != nil || !cmp.Equal(got, want, cmp.AllowUnexported(record{})) {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range value {
		if _, err := parseRecord(appendKey(nil, 9), value[:n]); err == nil {
			t.Errorf("%d bytes of %d were taken", n, len(value))
		}
	}
	if _, err := parseRecord([]byte{Tag, 1}, value); err == nil {
		t.Error("a short key was taken")
	}
	other := appendKey(nil, 9)
	other[0]++
	if _, err := parseRecord(other, value); err == nil {
		t.Error("another tag was taken")
	}
	overflow := bytes.Repeat([]byte{0xff}, 11)
	for _, broken := range [][]byte{append(value, 0), overflow, append([]byte{7}, overflow...), binary.AppendUvarint([]byte{7}, 1<<62)} {
		if _, err := parseRecord(appendKey(nil, 9), broken); err == nil {
			t.Errorf("%x was taken", broken)
		}
	}
}

// TestLeaders checks that leaders are the same in all views, near evenly spread, and that only the
// dead one's partitions move.
func TestLeaders(t *testing.T) {
	leads := func(self uint64, others ...uint64) [partitions]uint64 {
		i := newTestInstances(t, nil, self)
		i.heartbeats = 10
		for _, id := range others {
			i.known[id] = &instance{id: id, heartbeat: 10}
		}
		i.elect()
		var ids [partitions]uint64
		for partition, leader := range i.view.Load().leaders {
			if ids[partition] = self; leader != nil {
				ids[partition] = leader.id
			}
		}
		return ids
	}
	four := leads(1, 2, 3, 4)
	if four != leads(3, 4, 2, 1) {
		t.Error("two instances see different leaders")
	}
	three, counts := leads(1, 2, 4), make(map[uint64]int)
	for partition, id := range four {
		counts[id]++
		if id != 3 && three[partition] != id {
			t.Errorf("partition %d went from %d to %d though 3 has died", partition, id, three[partition])
		}
	}
	for id := uint64(1); id <= 4; id++ {
		if counts[id] < partitions/8 {
			t.Errorf("instance %d leads %d partitions", id, counts[id])
		}
	}
}

// TestJoining: no instance waits for the results of one that does not lead anything yet.
func TestJoining(t *testing.T) {
	old, joining := newTestInstances(t, nil, 1), newTestInstances(t, nil, 2)
	old.heartbeats = 100
	for joining.heartbeats = 1; joining.heartbeats < 6; joining.heartbeats++ {
		old.known[2] = &instance{id: 2, heartbeat: joining.heartbeats}
		joining.known[1] = &instance{id: 1, heartbeat: old.heartbeats}
		old.elect()
		joining.elect()
		for partition := range partitions {
			if old.view.Load().leaders[partition] != nil && joining.view.Load().leaders[partition] != nil {
				t.Fatalf("at heartbeat %d no instance leads partition %d", joining.heartbeats, partition)
			}
		}
	}
	if len(old.view.Load().others) != 1 || !slices.ContainsFunc(old.view.Load().leaders[:], func(i *instance) bool { return i != nil }) {
		t.Error("the newcomer leads nothing in the end")
	}
}

// TestHeartbeats has two instances share a store, heartbeat by heartbeat. Each finds the other with
// its sequences, counts it as dead after its missed heartbeats, and removes its record in the end.
func TestHeartbeats(t *testing.T) {
	store := simkv.New(simkv.Config{Shared: true})
	a, b := newTestInstances(t, store, 1), newTestInstances(t, store, 2)
	heartbeat := func(i *instances) {
		t.Helper()
		if err := i.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		heartbeat(a)
		heartbeat(b)
	}
	if v := a.view.Load(); v.alone || !cmp.Equal(v.feeds, map[uint64][]uint32{2: {3}}) {
		t.Errorf("a sees feeds %v", v.feeds)
	}
	heartbeat(a) // sees b's last heartbeat
	for range a.cfg.Timing.Missed {
		if a.view.Load().alone {
			t.Error("b is dead too early")
		}
		heartbeat(a)
	}
	if !a.view.Load().alone {
		t.Error("b lives on")
	}
	for range a.cfg.Timing.Forget {
		heartbeat(a)
	}
	heartbeat(a)
	if len(a.known) != 0 {
		t.Error("b's record is still there")
	}
	heartbeat(b)
	b.leave(t.Context())
	heartbeat(a)
	if len(a.known) != 0 {
		t.Error("b's record is still there after it has left")
	}
}

// TestJoins: an instance leads nothing that another could lead until it has made more heartbeats
// than Joining; alone it leads all.
func TestJoins(t *testing.T) {
	i := newTestInstances(t, nil, 1)
	i.known[2] = &instance{id: 2, heartbeat: 100}
	for i.heartbeats = 0; i.heartbeats <= uint64(i.cfg.Timing.Joining)+1; i.heartbeats++ {
		i.elect()
		leads := slices.Contains(i.view.Load().leaders[:], nil)
		if want := i.heartbeats > uint64(i.cfg.Timing.Joining); leads != want {
			t.Errorf("after %d heartbeats: leads %v", i.heartbeats, leads)
		}
	}
}

// TestDamagedRecord: an instance's record that cannot be read fails the heartbeat of each other.
func TestDamagedRecord(t *testing.T) {
	store := simkv.New(simkv.Config{Shared: true})
	err := kv.Once(t.Context(), store, func(txn kv.Txn) error {
		txn.Set(appendKey(nil, 2), []byte{1})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	i := newTestInstances(t, store, 1)
	if err := i.step(t.Context()); err == nil || !strings.Contains(err.Error(), "damaged") || i.heartbeats != 0 {
		t.Errorf("%v, %d heartbeats", err, i.heartbeats)
	}
}

// TestNoted: what a heartbeat has found is in the metrics, in the mean of transactions, in the log
// if others come or go, and in the instance's own record.
func TestNoted(t *testing.T) {
	store, log := simkv.New(simkv.Config{Shared: true}), new(bytes.Buffer)
	m := NewMetrics(nil)
	var observed int
	a := newInstances(Config{ID: 1, Interner: storeOnly{store: store}, Timing: DefaultTiming(), Logger: slog.New(slog.NewTextHandler(log, nil)), Metrics: m},
		func(time.Duration) { observed++ })
	b := newTestInstances(t, store, 2)
	for n, step := range []*instances{a, b, a, a} {
		if err := step.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if joined := strings.Count(log.String(), "joined"); (joined == 1) != (n >= 2) {
			t.Errorf("step %d: log %s", n, log)
		}
	}
	if n := gauge(t, m.Instances); observed != 3 || n != 1 {
		t.Errorf("%d transactions observed, %v others", observed, n)
	}
	if own := a.read[slices.IndexFunc(a.read, func(r record) bool { return r.id == 1 })]; own.heartbeat != 2 {
		t.Errorf("the third heartbeat finds number %d", own.heartbeat)
	}
	if other := a.known[2]; other.heartbeat != 1 || other.missed != 1 {
		t.Errorf("of the other heartbeat %d, %d missed", other.heartbeat, other.missed)
	}
}

// TestForgets: the record of an instance goes when it has missed Forget heartbeats, no sooner.
func TestForgets(t *testing.T) {
	store := simkv.New(simkv.Config{Shared: true})
	a, b := newTestInstances(t, store, 1), newTestInstances(t, store, 2)
	_, _ = b.step(t.Context()), a.step(t.Context())
	for n := range a.cfg.Timing.Forget + 2 { // the last of them reads that it is gone
		if len(a.known) != 1 {
			t.Fatalf("gone after %d missed heartbeats", n)
		}
		_ = a.step(t.Context())
	}
	if len(a.known) != 0 {
		t.Error("the record is still there")
	}
}

// TestDefaultTiming: no part of it is 0, and the documented ones are as docs/interning.md says.
func TestDefaultTiming(t *testing.T) {
	v := reflect.ValueOf(DefaultTiming())
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is 0", v.Type().Field(i).Name)
		}
	}
	d := DefaultTiming()
	if d.Heartbeat != 200*time.Millisecond || d.Missed != 3 || d.HoldOff != 250*time.Millisecond || maxHoldOff != 2*time.Second || partitions != 256 {
		t.Errorf("%+v, at most %v, %d partitions", d, maxHoldOff, partitions)
	}
}

// TestOutageKillsNone: while the store does not answer, no other instance counts as dead.
func TestOutageKillsNone(t *testing.T) {
	store := simkv.New(simkv.Config{Shared: true})
	a, b := newTestInstances(t, store, 1), newTestInstances(t, store, 2)
	for range 3 {
		_, _ = a.step(t.Context()), b.step(t.Context())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 * a.cfg.Timing.Missed {
		if err := a.step(ended); err == nil || errors.Is(err, kv.ErrConflict) {
			t.Fatalf("a heartbeat without a store: %v", err)
		}
	}
	if _ = a.step(t.Context()); a.view.Load().alone {
		t.Error("b counts as dead after an outage")
	}
}
