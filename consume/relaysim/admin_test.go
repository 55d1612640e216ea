package relaysim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/consume/relaysim/testwait"
)

// TestNumberingActions: jumps, repeats and what the window forgets.
func TestNumberingActions(t *testing.T) {
	r := startRelay(t, "--frames", "30", "--rate", "100000")
	waitMade(t, r, 30)
	r.post("jump?by=1000")
	if n := r.post("repeat?n=3")["repeated"]; n != 3.0 {
		t.Errorf("repeated %v messages", n)
	}
	r.post("inject?kind=unknown-kind")
	want := append(upTo(1, 30), 28, 29, 30, 1031)
	if got := seqs(t, r.connect("cursor=0").drain(len(want))); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := seqs(t, r.connect("cursor=30").drain(1)); !slices.Equal(got, []int64{1031}) {
		t.Errorf("after 30: got %v", got) // repeats belong to no cursor
	}
	if lost := r.post("forget?keep=2")["lost_through"]; lost != 30.0 {
		t.Errorf("lost through %v", lost)
	}
	if got := seqs(t, r.connect("cursor=0").drain(2)); !slices.Equal(got, []int64{30, 1031}) {
		t.Errorf("after forget: got %v", got)
	}
	if s := r.post("repeat?n=0"); s["repeated"] != 0.0 {
		t.Errorf("repeat?n=0: %v", s)
	}
}

// TestComeback: a host is replaced by one that numbers anew, and returns with its old numbering.
func TestComeback(t *testing.T) {
	const start = 1 << 30 // which the new numbering does not reach
	r := startRelay(t, "--rate", "1000", "--first-seq", itoa(start))
	waitMade(t, r, 20)
	c := r.connect("cursor=0")
	first := c.read(1) // it has come to the first numbering
	r.post("restart-numbering?after=10")
	old := seqs(t, append(first, c.drain(untilItEnds)...))
	if len(old) < 20 || old[0] != start {
		t.Fatalf("got %d messages of the first numbering, from %v", len(old), old)
	}
	if got := seqs(t, r.connect("cursor=0").read(5)); !slices.Equal(got, upTo(11, 15)) {
		t.Errorf("new numbering: got %v", got)
	}
	r.post("comeback")
	got := seqs(t, r.connect("cursor="+itoa(old[0])).read(len(old)+10))
	if !slices.Equal(got, upTo(start+1, start+int64(len(got)))) {
		t.Errorf("old numbering: got %v", got)
	}
	epochs := make(map[uint32]int)
	lines, err := ReadTruth(r.truth)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if (l.Epoch == 0) != (l.Seq >= start) {
			t.Fatalf("epoch %d has seq %d", l.Epoch, l.Seq)
		}
		epochs[l.Epoch]++
	}
	if len(epochs) != 2 {
		t.Errorf("epochs in the truth: %v", epochs)
	}
}

// TestBurstAndQuiet: more at once than the rate, and nothing for a while.
func TestBurstAndQuiet(t *testing.T) {
	r := startRelay(t, "--rate", "10")
	r.post("burst?n=2000")
	waitMade(t, r, 2000) // at the rate that would take 200 s
	r.post("quiet?for=1h")
	made := r.producer.made.Load()
	if !testwait.Stays(200*time.Millisecond, func() bool { return r.producer.made.Load() == made }) {
		t.Error("messages while quiet")
	}
}

// TestStallAndDrip: connections that hang, and that give a little at a time.
func TestStallAndDrip(t *testing.T) {
	r := startRelay(t, "--frames", "400", "--rate", "100000")
	waitMade(t, r, 400)
	began := time.Now()
	r.post("stall?for=250ms")
	c := r.connect("cursor=0")
	c.read(1)
	if d := time.Since(began); d < 250*time.Millisecond {
		t.Errorf("the first message came after %v", d)
	}
	began = time.Now()
	r.post("drip?for=300ms&bytes=100000")
	if got := seqs(t, r.connect("cursor=0").read(400)); !slices.Equal(got, upTo(1, 400)) {
		t.Error("messages are missing")
	}
	if d := time.Since(began); d < 250*time.Millisecond {
		t.Errorf("400 messages came in %v", d)
	}
}

// TestEndings: what ends connections, and that the relay goes on.
func TestEndings(t *testing.T) {
	r := startRelay(t, "--rate", "500")
	for path, tail := range map[string]string{"disconnect": "", "too-slow": "ConsumerTooSlow"} {
		c := r.connect("")
		c.read(1)
		r.post(path)
		got := c.drain(untilItEnds)
		if _, err := c.next(); isTimeout(err) {
			t.Errorf("%s: the connection is still there", path)
		}
		if tail != "" && (len(got) == 0 || !strings.Contains(string(got[len(got)-1].data), tail)) {
			t.Errorf("%s: no %s at the end", path, tail)
		}
	}
	r.connect("").read(1)
}

// TestAdminErrors: bad requests change nothing.
func TestAdminErrors(t *testing.T) {
	r := startRelay(t, "--frames", "5")
	waitMade(t, r, 5)
	for _, path := range []string{"jump?by=x", "jump?by=-1", "inject?kind=nice", "stall?for=1", "drip?bytes=0", "comeback", "nothing"} {
		if status, _ := r.admin(path); status < 400 || status > 405 {
			t.Errorf("%s: %d", path, status)
		}
	}
	res, err := http.Get("http://" + r.addr + "/admin/status")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var status map[string]any
	if err := json.NewDecoder(res.Body).Decode(&status); err != nil || status["seq"] != 5.0 || status["messages"] != 5.0 {
		t.Errorf("status %v (%v)", status, err)
	}
}

// TestHostileStream: all kinds come, in turn, numbered so that nothing good is taken for a repeat,
// and the truth is that of the good parts.
func TestHostileStream(t *testing.T) {
	kinds := hostileKinds()
	n := 2 * len(kinds)
	r := startRelay(t, "--hostile-every", "2", "--frames", itoa(int64(n)), "--wait-for-consumer")
	messages := r.connect("").read(n)
	var good []received
	last := int64(0)
	for i, m := range messages {
		if i%2 == 1 {
			continue
		}
		seq := seqOf(t, m.data)
		step := int64(1)
		if i > 0 && !kinds[i/2-1].unnumbered() {
			step = 2
		}
		if seq != last+step {
			t.Fatalf("message %d (before it: %s): seq %d after %d", i, kinds[max(0, i/2-1)].name, seq, last)
		}
		last = seq
		good = append(good, m)
	}
	lines := r.lines()
	for _, want := range recompute(t, 0, good) {
		if !slices.Contains(lines, want) {
			t.Errorf("not in the truth: %.200s", want)
		}
	}
	kept := 0
	for _, kind := range kinds {
		kept += len(kind.make(testBuilder()).keep)
	}
	if got := len(lines) - len(recompute(t, 0, good)); got != kept {
		t.Errorf("%d events of hostile messages in the truth, want %d", got, kept)
	}
}

// unnumbered says that messages of the kind take no seq.
func (k *hostileKind) unnumbered() bool { return k.make(testBuilder()).unnumbered }
