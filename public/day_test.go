package public

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/consume/relaysim/testwait"
	"millrace/replay"
)

// dayWorld is what a server's samples are of.
type dayWorld struct {
	mu                sync.Mutex
	relay             *Relay
	disk, free, count int64
}

// runDay lets a server sample a world until the returned function is called.
func runDay(t *testing.T, w *dayWorld, file string, log *syncBuffer) (s *testServer, stop func()) {
	t.Helper()
	src, _ := statusSource(replay.Counts{Step: -1})
	src.diskBytes = func() int64 {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.disk
	}
	s = serveSourceBubble(t, src, newRegistry(t), func(cfg *Config, _ *timing) {
		cfg.DayFile, cfg.Logger = file, newTextLogger(log)
		cfg.Process = func() Process {
			w.mu.Lock()
			defer w.mu.Unlock()
			free := w.free
			return Process{Relay: w.relay, FreeBytes: &free}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	synctest.Wait()
	return s, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func (s *testServer) dayOf() (answer dayJSON) {
	s.t.Helper()
	w := s.get("GET", "/status/day", nil)
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 || w.Header().Get("Cache-Control") != "no-store" {
		s.t.Fatalf("/status/day: %d %v %v", w.Code, w.Header(), err)
	}
	return answer
}

// wantDay is what /status/day must say of samples that a map has by minute.
func wantDay(of map[uint32]sample, minute uint32) dayJSON {
	want := dayJSON{60 * int64(minute), []*float64{}, []*int64{}, []*uint32{}}
	for m := minute - 1439; m <= minute; m++ {
		s, ok := of[m]
		switch {
		case !ok && len(want.LagS) == 0:
			continue
		case !ok:
			want.LagS, want.DiskBytes, want.Subscribers = append(want.LagS, nil), append(want.DiskBytes, nil), append(want.Subscribers, nil)
			continue
		}
		lag := float64(s.LagMS) / 1000
		want.LagS, want.DiskBytes, want.Subscribers = append(want.LagS, &lag), append(want.DiskBytes, &s.DiskBytes), append(want.Subscribers, &s.Subscribers)
		if s.LagMS == offlineMS {
			want.LagS[len(want.LagS)-1] = nil
		}
	}
	return want
}

// TestDay: over more than a day, with restarts, the answer has the samples of the last 1,440
// minutes, as a map has them. A minute has the most of its lag and its subscribers.
func TestDay(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	file := filepath.Join(t.TempDir(), "day")
	bubble(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 1))
		w, log, of := &dayWorld{relay: &Relay{}}, &syncBuffer{}, make(map[uint32]sample)
		s, stop := runDay(t, w, file, log)
		observe := func() {
			now := sample{uint32(time.Now().Unix() / 60), offlineMS, uint32(w.count), w.disk, w.free}
			if w.relay.Connected {
				now.LagMS = uint32((w.relay.Lag + w.relay.Pending).Milliseconds())
			}
			if before, ok := of[now.Minute]; ok {
				now.LagMS, now.Subscribers = max(now.LagMS, before.LagMS), max(now.Subscribers, before.Subscribers)
			}
			of[now.Minute] = now
		}
		observe()
		for at := range 1600 * 6 {
			w.mu.Lock()
			w.disk, w.free = r.Int64N(1e12), r.Int64N(1e12)
			w.relay = &Relay{Connected: r.IntN(50) > 0, Lag: time.Duration(r.IntN(5e9)), Pending: time.Duration(r.IntN(1e9))}
			w.mu.Unlock()
			w.count = r.Int64N(1e4)
			s.count.Store(w.count)
			testwait.Elapse(sampleEvery)
			observe()
			switch {
			case r.IntN(2000) == 0: // a restart, after a while
				s.count.Store(0)
				stop()
				testwait.Elapse(time.Duration(r.IntN(100)) * time.Minute)
				w.count = 0
				s, stop = runDay(t, w, file, log)
				observe()
			case at%997 == 0:
				if diff := cmp.Diff(wantDay(of, minuteOf(time.Now())), s.dayOf()); diff != "" {
					t.Fatalf("after %v: -want +got\n%s", time.Duration(at)*sampleEvery, diff)
				}
			}
		}
		if diff := cmp.Diff(wantDay(of, minuteOf(time.Now())), s.dayOf()); diff != "" {
			t.Errorf("at the end: -want +got\n%s", diff)
		}
		s.count.Store(0)
		stop()
		if info, err := os.Stat(file); err != nil || info.Size() != 40_332 {
			t.Errorf("the file: %v, %v", info, err)
		}
		if text := log.String(); strings.Contains(text, "level=WARN") {
			t.Errorf("log: %s", text)
		}
	})
}

// TestMinuteOfTheDayBefore: a minute without a sample does not get that of a day before.
func TestMinuteOfTheDayBefore(t *testing.T) {
	const now = 11*dayMinutes + 7
	var d day
	for _, minute := range []uint32{now - dayMinutes - 4, now - 3, now - dayMinutes - 2, now} {
		d.add(sample{Minute: minute})
	}
	var got []uint32
	for _, s := range d.lastLocked(10, now) {
		if s == nil {
			s = &sample{}
		}
		got = append(got, s.Minute)
	}
	if want := []uint32{now - 3, 0, 0, now}; !slices.Equal(got, want) {
		t.Errorf("the last minutes are %d, want %d", got, want)
	}
}

// TestNewMinute: until a minute has its first sample, the answer ends with the one before.
func TestNewMinute(t *testing.T) {
	const first = 2 * dayMinutes
	var d day
	d.add(sample{Minute: first})
	for _, minute := range []uint32{first + 1, first} {
		if body := d.json(minute); !strings.Contains(string(body), `"end_s":172800,"lag_s":[0]`) {
			t.Errorf("in minute %d: %s", minute, body)
		}
		d.body = nil
	}
}

// TestDayIsKeptEachMinute: a server that dies loses a minute of samples at most.
func TestDayIsKeptEachMinute(t *testing.T) {
	file := filepath.Join(t.TempDir(), "day")
	bubble(t, func(t *testing.T) {
		w, log := &dayWorld{relay: &Relay{Connected: true}, disk: 7}, &syncBuffer{}
		_, stop := runDay(t, w, file, log)
		defer stop()
		testwait.Elapse(5*time.Minute + sampleEvery)
		s, stopped := runDay(t, w, file, log)
		defer stopped()
		if got := s.dayOf(); len(got.DiskBytes) != 6 {
			t.Errorf("%d minutes", len(got.DiskBytes))
		}
	})
}

// TestDamagedDay: a file with another byte or another length is dropped with a warning, and the
// server goes on and writes a sound one.
func TestDamagedDay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "day")
	var d day
	d.add(sample{Minute: 7, DiskBytes: 8})
	if err := d.save(file); err != nil {
		t.Fatal(err)
	}
	sound, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damaged := [][]byte{{}, sound[:8], sound[:len(sound)-1], append(sound[:len(sound):len(sound)], 0), make([]byte, len(sound))}
	for i := range 40 {
		b := append([]byte(nil), sound...)
		b[i*len(b)/40] ^= 1
		damaged = append(damaged, b)
	}
	for i, b := range damaged {
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		var d day
		if err := d.load(file); err == nil || d.samples != [dayMinutes]sample{} {
			t.Errorf("case %d: %v", i, err)
		}
	}
	bubble(t, func(t *testing.T) {
		var log syncBuffer
		s, stop := runDay(t, &dayWorld{}, file, &log)
		if got := s.dayOf(); len(got.LagS) != 1 || !strings.Contains(log.String(), "level=WARN msg=\"the day of samples cannot be read") {
			t.Errorf("%d minutes; log: %s", len(got.LagS), log.String())
		}
		stop()
	})
	if err := d.load(file); err != nil {
		t.Error("afterwards:", err)
	}
}

// TestDayThatCannotBeWritten: the server warns once, and serves on.
func TestDayThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none", "day")
	bubble(t, func(t *testing.T) {
		var log syncBuffer
		s, stop := runDay(t, &dayWorld{}, file, &log)
		testwait.Elapse(time.Hour)
		if n, got := strings.Count(log.String(), "cannot be written"), s.dayOf(); n != 1 || len(got.LagS) != 61 {
			t.Errorf("%d warnings, %d minutes", n, len(got.LagS))
		}
		stop()
	})
}

// TestDaysUntilFull compares with the sum of products of deviations from the means.
func TestDaysUntilFull(t *testing.T) {
	const now = 30_000_000
	var d day
	want := func(what string, want float64) {
		t.Helper()
		if got := d.daysUntilFull(now); math.Abs(*got-want) > 1e-6*want {
			t.Errorf("%s: %v, want %v", what, *got, want)
		}
	}
	d.add(sample{Minute: now, FreeBytes: 5e9})
	if got := d.daysUntilFull(now); got != nil {
		t.Errorf("of one sample: %v", *got)
	}
	d.add(sample{Minute: now - paceMinutes, FreeBytes: 9e9}) // is too old
	d.add(sample{Minute: now - 1, FreeBytes: -1})            // is unknown
	if got := d.daysUntilFull(now); got != nil {
		t.Errorf("of one sample that counts: %v", *got)
	}
	var xs, ys []float64
	for m := range uint32(paceMinutes) {
		if m%7 == 3 {
			continue
		}
		free := 800e9 + 1e7*float64(m) + 1e6*rand.Float64()
		d.add(sample{Minute: now - m, FreeBytes: int64(free)})
		if m != 1 {
			xs, ys = append(xs, -60*float64(m)), append(ys, math.Floor(free))
		}
	}
	d.add(sample{Minute: now - 1, FreeBytes: -1})
	var x, y, xy, xx float64
	for i := range xs {
		x, y = x+xs[i]/float64(len(xs)), y+ys[i]/float64(len(ys))
	}
	for i := range xs {
		xy, xx = xy+(xs[i]-x)*(ys[i]-y), xx+(xs[i]-x)*(xs[i]-x)
	}
	want("it fills", ys[0]/(-xy/xx)/86400)
	for m := range uint32(paceMinutes) {
		d.add(sample{Minute: now - m, FreeBytes: 800e9 - 1e6*int64(m)})
	}
	want("it empties", 365)
	d.add(sample{Minute: now, FreeBytes: 0})
	want("it is full", 0)
}
