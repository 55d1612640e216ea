package main

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
)

// TestNumbers writes numbers as tables have them.
func TestNumbers(t *testing.T) {
	var out bytes.Buffer
	table := newTable(&out, "what", "a", "b")
	table.row("numbers", grouped(999), grouped(int64(1000)))
	table.row("more", grouped(1234567.6), mib(3<<19))
	table.row("times", ms(1234567*time.Nanosecond), ms(150*time.Millisecond))
	if err := table.end(); err != nil {
		t.Fatal(err)
	}
	want := `| what    | a         | b      |
|---      |---:       |---:    |
| numbers | 999       | 1,000  |
| more    | 1,234,568 | 1.5    |
| times   | 1.23      | 150.00 |

`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	before := usage{at: time.Unix(100, 0), cpu: time.Second}
	if got := (usage{at: time.Unix(104, 0), cpu: 7 * time.Second}).cores(before); got != 1.5 {
		t.Errorf("%v cores", got)
	}
	if got := (streamed{events: 30, took: 2 * time.Second}).rate(); got != 15 {
		t.Errorf("%v a second", got)
	}
}

// TestMedian takes neither the longest nor the shortest.
func TestMedian(t *testing.T) {
	b := replayBench{replayFlags: &replayFlags{repeat: 3}}
	took := []time.Duration{5, 1, 3}
	got, err := b.median(func() (s streamed, _ error) { s.took, took = took[0], took[1:]; return s, nil })
	if got.took != 3 || len(took) > 0 || err != nil {
		t.Errorf("%v, %v", got.took, err)
	}
	if _, err := b.median(func() (streamed, error) { return streamed{}, errDiffers }); !errors.Is(err, errDiffers) {
		t.Errorf("its error: %v", err)
	}
}

// TestMeter counts events that come at some moments, in two readings.
func TestMeter(t *testing.T) {
	var m meter
	begun := time.UnixMicro(1_783_000_000_000_000)
	at := func(d time.Duration) time.Time { return begun.Add(d) }
	us := func(d time.Duration) int64 { return at(d).UnixMicro() }
	const second = time.Second
	const pause = 100 * time.Millisecond
	m.add(at(0), us(-20*time.Microsecond), us(-30*time.Microsecond))
	m.add(at(0), us(-20*time.Microsecond), us(-maxRelayLag)) // too old to count
	m.add(at(pause), 0, 0)
	m.add(at(pause+second), us(pause+second), us(pause+second-maxRelayLag+time.Microsecond))
	r := m.take()
	if r.events != 4 || r.gap != second {
		t.Errorf("%d events, the longest gap is %v", r.events, r.gap)
	}
	count := func(l *lags) (n int64) {
		for i := range l.counts {
			n += l.counts[i].Load()
		}
		return n
	}
	if p50 := r.stamp.quantile(0.5); count(r.stamp) != 3 || p50 != 20*time.Microsecond {
		t.Errorf("%d lags from the stamp, half of them %v", count(r.stamp), p50)
	}
	if count(r.relay) != 2 || r.relay.quantile(0.5) != 30*time.Microsecond || r.relay.quantile(1) < maxRelayLag-time.Minute {
		t.Errorf("%d lags from the relay, of %v and %v", count(r.relay), r.relay.quantile(0.5), r.relay.quantile(1))
	}
	if r = m.take(); r.events != 0 || r.gap != 0 || count(r.stamp) != 0 || count(r.relay) != 0 {
		t.Errorf("nothing came: %+v", r)
	}
	m.add(at(pause+4*second), 0, 0) // the gap went on
	if r = m.take(); r.gap != 3*second || r.events != 1 {
		t.Errorf("a gap between readings: %v", r.gap)
	}
}

// TestProfileTable: the parts of an event's time add up to what server, relay and clients took.
func TestProfileTable(t *testing.T) {
	r := &ingestResult{seconds: 2, reading: &meter{events: 1000}, server: 8 * time.Millisecond, relay: 2 * time.Millisecond, clients: time.Millisecond,
		blocks: blockCounts{blocks: 10, events: 5000}}
	if r.rate() != 500 || r.each(r.server) != 8 || r.eventsABlock() != "500" {
		t.Errorf("%v events/s, %v µs of the server, %s events a block", r.rate(), r.each(r.server), r.eventsABlock())
	}
	if got := new(ingestResult).eventsABlock(); got != "–" {
		t.Errorf("%s events a block where there is none", got)
	}
	var out bytes.Buffer
	err := printProfile(&out, r, 4*time.Millisecond, map[string]time.Duration{
		"millrace/cmd/millrace/ingest.(*Pipeline).intern": time.Millisecond, "millrace/intern.(*worker).run": time.Millisecond / 2,
		"millrace/replay.(*Log).Seal": time.Millisecond, "main.main": time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"server: intern": "3.00", "server: seal (frame, compress, columns)": "2.00", profileRest: "3.00", profileRelay: "2.00",
		profileClients: "1.00", "all": "11.00", "server: translate": "0.00"}
	for line := range strings.Lines(out.String()) {
		cells := strings.Split(line, "|")
		if len(cells) == 4 {
			if us, named := want[strings.TrimSpace(cells[1])]; named && us == strings.TrimSpace(cells[2]) {
				delete(want, strings.TrimSpace(cells[1]))
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("no rows of %v in\n%s", want, &out)
	}
}

// TestCompare: what a class got is counted and timed within the measurement only, and a subscriber
// that missed an event, or got another, is reported.
func TestCompare(t *testing.T) {
	log := &heldLog{expectations: map[string]*expectation{}}
	for i := range int64(10) {
		log.events = append(log.events, heldEvent{timeUS: 100 + i, plain: []byte{byte(i)}})
	}
	exact, live := class{name: "exact", n: 3}, class{name: "live", live: true}
	all := &subscribers{at: [2]int64{102, 106}}
	add := func(c *class, frames string) {
		k := &subscriber{class: c, ended: errClosed}
		k.hash = *xxhash.New()
		_, _ = k.hash.WriteString(frames)
		k.seen = int64(len(frames))
		k.notes = []note{{0, 3, 110}, {3, 7, 120}}
		all.all = append(all.all, k)
		k.seenAt = [2]int64{2, 7}
	}
	const whole = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09"
	add(&exact, whole)
	add(&live, "x")
	r := all.compare(exact, log)
	if r.events != 5 || r.wrong != 0 {
		t.Errorf("%+v", r)
	}
	want := new(lags)
	for _, us := range []int64{110 - 102, 120 - 103, 120 - 104, 120 - 105} {
		want.addMicros(us)
	}
	for i := range want.counts {
		if want.counts[i].Load() != r.lag.counts[i].Load() {
			t.Errorf("step %d of lags has %d, want %d", i, r.lag.counts[i].Load(), want.counts[i].Load())
		}
	}
	if r := all.compare(live, nil); r.events != 5 || r.wrong != 0 {
		t.Errorf("a class that is not compared: %+v", r)
	}
	add(&exact, whole[:9])
	add(&exact, "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x08")
	if r := all.compare(exact, log); r.wrong != 2 || r.events != 15 || !strings.Contains(r.example, "10 events of 10") {
		t.Errorf("%+v", r)
	}
}

// TestHeldEvent: each frame of the log must be the truth's event.
func TestHeldEvent(t *testing.T) {
	const truth = `{"did":"did:plc:a","time_us":0,"kind":"commit","commit":{"collection":"a.b.c"}}`
	plain := strings.Replace(truth, `:0,`, `:1795211644641595,`, 1)
	var e heldEvent
	if err := e.setPlain([]byte("frame"), []byte(plain), []byte(truth)); err != nil {
		t.Fatal(err)
	}
	if e.timeUS != 1795211644641595 || e.did != "did:plc:a" || e.collection != "a.b.c" || string(e.plain) != "frame" {
		t.Errorf("%+v", e)
	}
	if err := e.setPlain(nil, []byte(strings.Replace(plain, "a.b.c", "a.b.d", 1)), []byte(truth)); !errors.Is(err, errNotExact) {
		t.Errorf("another event: %v", err)
	}
}

// TestTrafficShares: collections, lateness and DIDs are as the stream has them, and the same in
// each run.
func TestTrafficShares(t *testing.T) {
	source, again, b, same := newTraffic(), newTraffic(), newBatch(1000), newBatch(1000)
	counts, dids := map[string]int{}, map[string]int{}
	late, made := 0.0, 0
	for n := range 40 {
		source.next(b)
		again.next(same)
		if b.number != n {
			t.Errorf("batch %d is number %d", n, b.number)
		}
		for i := range b.reqs {
			made++
			counts[string(b.reqs[i].Collection)]++
			dids[string(b.reqs[i].DID)]++
			// 1/1500 s between two records, in whole microseconds
			late += float64(trafficStart+int64(made)*666-tidMicros(t, string(b.reqs[i].RecordKey))) / 1e6
			if !bytes.Equal(uri(&b.reqs[i]), uri(&same.reqs[i])) {
				t.Fatalf("%s, and in another run %s", uri(&b.reqs[i]), uri(&same.reqs[i]))
			}
		}
	}
	for collection, percent := range map[string]float64{"app.bsky.feed.like": 66, "app.bsky.feed.post": 13, "app.bsky.feed.repost": 11,
		"app.bsky.graph.follow": 9, "app.bsky.graph.block": 1} {
		if got := 100 * float64(counts[collection]) / float64(made); math.Abs(got-percent) > 0.8 {
			t.Errorf("%.1f %% are of %s, want %v", got, collection, percent)
		}
	}
	if mean := late / float64(made); math.Abs(mean-1) > 0.05 {
		t.Errorf("records are late by %.2f s in the mean, want 1", mean)
	}
	// With a square, the busiest of two thousand has one in 45 records.
	busiest := 0
	for _, n := range dids {
		busiest = max(busiest, n)
	}
	if len(dids) < 1400 || len(dids) > 2000 || busiest < made/60 || busiest > made/25 {
		t.Errorf("%d DIDs, the busiest has %d of %d records", len(dids), busiest, made)
	}
}

// TestFollows: an account follows others once each, as many in the mean as is said, few have most,
// and account 0 has the most followers.
func TestFollows(t *testing.T) {
	f := follows{accounts: 20_000, mean: 30, uid: graphUID}
	followers := map[uint64]int{}
	var sizes []int
	err := f.each(func(actor uint64, subjects []uint64) error {
		if actor != graphUID(uint64(len(sizes))) {
			t.Fatalf("account %d is %x", len(sizes), actor)
		}
		sizes = append(sizes, len(subjects))
		for _, s := range subjects {
			followers[s]++
		}
		slices.Sort(subjects)
		if n := len(subjects); len(slices.Compact(subjects)) != n || n > f.accounts/20 {
			t.Fatalf("account %d follows %d, some of them twice", len(sizes), n)
		}
		return nil
	})
	sum, most := 0, 0
	for _, n := range sizes {
		sum += n
	}
	slices.Sort(sizes)
	for _, n := range sizes[len(sizes)*9/10:] {
		most += n
	}
	mean := float64(sum) / float64(f.accounts)
	if err != nil || len(sizes) != f.accounts || mean < 20 || mean > 32 || most < sum*2/5 {
		t.Errorf("%d accounts follow %.1f in the mean, a tenth of them %d of %d, %v", len(sizes), mean, most, sum, err)
	}
	for uid, n := range followers {
		if n > followers[graphUID(0)] {
			t.Errorf("%x has %d followers, and account 0 has %d", uid, n, followers[graphUID(0)])
		}
	}
	if err := f.each(func(uint64, []uint64) error { return errDiffers }); !errors.Is(err, errDiffers) {
		t.Errorf("its error: %v", err)
	}
}

// TestStampIn reads the stamp of an event, and of no string within it.
func TestStampIn(t *testing.T) {
	for event, want := range map[string]int64{
		`{"did":"did:plc:a","time_us":123,"kind":"commit"}`:                        123,
		`{"did":"did:plc:a","kind":"commit"}`:                                      0,
		`{"did":"did:plc:a","time_us":x,"kind":"commit"}`:                          0,
		`{"did":"` + strings.Repeat("a", 180) + `","time_us":123,"kind":"commit"}`: 0,
	} {
		if got := stampIn([]byte(event)); got != want {
			t.Errorf("%s: %d, want %d", event, got, want)
		}
	}
}

// TestQuietResult prints what each quiet subscriber takes, less what a server without any grew by.
func TestQuietResult(t *testing.T) {
	r := result{scenario: scenario{name: quietScenario, about: "quiet", mix: []class{{n: 10}}}, seconds: 4, frames: 800,
		before: 1 << 20, grown: 1 << 19, rss: 1<<20 + 1<<19 + 70_000,
		classes: []classResult{
			{class: class{name: "right", n: 10}, events: 400, lag: new(lags)},
			{class: class{name: "wrong", n: 10}, wrong: 3, example: "five", lag: new(lags)},
			{class: class{name: "live", live: true}, lag: new(lags)}}}
	var out bytes.Buffer
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"200 frames/s for 4 s", "each takes 7000 bytes",
		"NO: 3 of 10: five", "not compared", "| right       | 10     | 100      |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}
