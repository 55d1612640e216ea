package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// v2ClientVariable names a build of Jetstream v2's client: go build ./cmd/client in a clone of
// bluesky-social/jetstream.
const v2ClientVariable = "MILLRACE_TEST_JETSTREAM_V2"

// v2Blocks is what Jetstream v2's client drops of a #sync event.
var v2Blocks = regexp.MustCompile(`"blocks":\{"\$bytes":"[^"]*"\},`)

// v2Client starts Jetstream v2's client.
func v2Client(t *testing.T, addr string, afterSeq int64, flags ...string) *jsClient {
	t.Helper()
	args := append([]string{"--host", "http://" + addr, "--print", "--after-seq", strconv.FormatInt(afterSeq, 10)}, flags...)
	return startClient(t, "", os.Getenv(v2ClientVariable), args...)
}

// v2Seq is the seq of an event on v2's wire, in a log of one epoch.
func (e truthEvent) v2Seq() int64 { return e.Seq<<10 | int64(e.Op) }

// parseV2 reads an event as Jetstream v2's client prints it, or one of the truth.
func parseV2(t *testing.T, line string) (e truthEvent) {
	t.Helper()
	var event map[string]any
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&event); err != nil {
		t.Fatalf("%v: %.300s", err, line)
	}
	number := func(name string) (n int64) {
		if s, ok := event[name].(json.Number); ok {
			n, _ = s.Int64()
		}
		delete(event, name)
		return n
	}
	seq := number("cursor")
	e.Seq, e.Op, e.TimeUS = seq>>10, uint32(seq&1023), number("time_us")
	if commit, ok := event["commit"].(map[string]any); ok {
		delete(commit, "record_cbor")
	}
	text, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	e.JSON = string(text)
	return e
}

// parseV2Frame reads a frame of v2's wire into the form of parseV2.
func parseV2Frame(t *testing.T, frame string) (e truthEvent) {
	t.Helper()
	var message struct{ Payload map[string]json.RawMessage }
	var kind, stamp string
	var seq int64
	if err := json.Unmarshal([]byte(frame), &message); err != nil {
		t.Fatalf("%v: %.300s", err, frame)
	}
	event := message.Payload
	for name, into := range map[string]any{"$type": &kind, "time": &stamp, "seq": &seq} {
		if err := json.Unmarshal(event[name], into); err != nil {
			t.Fatalf("%s: %v: %.300s", name, err, frame)
		}
		delete(event, name)
	}
	at, err := time.Parse("2006-01-02T15:04:05.000000Z", stamp)
	if err != nil {
		t.Fatal(err)
	}
	_, kind, _ = strings.Cut(kind, "#")
	if kind == "commit" {
		commit := event
		event = map[string]json.RawMessage{"did": commit["did"]}
		delete(commit, "did")
		if event["commit"], err = json.Marshal(commit); err != nil {
			t.Fatal(err)
		}
	}
	event["kind"] = json.RawMessage(strconv.Quote(kind))
	text, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	e.JSON = parseV2(t, string(text)).JSON
	e.Seq, e.Op, e.TimeUS = seq>>10, uint32(seq&1023), at.UnixMicro()
	return e
}

// wantV2 waits until a client has printed as many events, and compares them.
func (c *jsClient) wantV2(t *testing.T, what string, want []truthEvent) {
	t.Helper()
	c.reach(t, len(want))
	c.stop()
	var got, normal []truthEvent
	for i, line := range c.events {
		e := parseV2(t, line)
		e.TimeUS = int64(i + 1) // instances have times of their own
		got = append(got, e)
	}
	for _, e := range want {
		e.JSON, e.Epoch = parseV2(t, v2Blocks.ReplaceAllString(e.JSON, "")).JSON, 0
		normal = append(normal, e)
	}
	checkExact(t, what, got, normal)
	if said := c.said(); strings.Contains(said, "event error") {
		t.Logf("%s: %s", what, said)
	}
}

// TestJetstreamV2Client: Jetstream v2's own client gets each event once, through a restart and a
// change to another instance behind the same relay. Replays and filters give it what they should.
func TestJetstreamV2Client(t *testing.T) {
	if os.Getenv(v2ClientVariable) == "" {
		t.Skipf("SKIPPED: %s names no build of Jetstream v2's client", v2ClientVariable)
	}
	for _, zstd := range []string{"--zstd=true", "--zstd=false"} {
		t.Run(zstd, func(t *testing.T) { testV2Client(t, zstd) })
	}
}

func testV2Client(t *testing.T, zstd string) {
	frames := 10_000
	if long() {
		frames = 110_000 // more than 100,000 events
	}
	sim := startRelaysim(t, "--rate", "2000", "--frames", strconv.Itoa(frames), "--wait-for-consumer", "--truth-sync")
	addr, dir, otherDir := freeAddr(t), t.TempDir(), t.TempDir()
	first := startDaemon(t, sim.url, dir, "--listen", addr)
	other := startDaemon(t, sim.url, otherDir, "--relay-cursor", "0")
	stop := func(d *testDaemon) {
		t.Helper()
		d.mustStop(t)
	}
	tail := v2Client(t, addr, 0, zstd)
	tail.reach(t, frames/4)
	stop(first)
	first = startDaemon(t, sim.url, dir, "--listen", addr)
	tail.reach(t, frames/2)
	stop(first)
	stop(other)
	d := startDaemon(t, sim.url, otherDir, "--listen", addr)
	sim.waitMade(t, int64(frames))
	want := readTruth(t, sim.truth)
	if long() && len(want) < 100_000 {
		t.Fatalf("%d events are not enough", len(want))
	}
	tail.wantV2(t, "the tail", want)

	v2Client(t, addr, 0, zstd).wantV2(t, "a replay", want)
	half := len(want) / 2
	v2Client(t, addr, want[half-1].v2Seq(), zstd).wantV2(t, "the second half", want[half:])
	pick := func(wanted func(e truthEvent) bool) (picked []truthEvent) {
		for _, e := range want {
			if wanted(e) {
				picked = append(picked, e)
			}
		}
		return picked
	}
	const like = "app.bsky.feed.like"
	v2Client(t, addr, 0, zstd, "--collection", like, "--kind", "commit").wantV2(t, "likes",
		pick(func(e truthEvent) bool { return strings.Contains(e.JSON, `"collection":"`+like+`"`) }))
	v2Client(t, addr, 0, zstd, "--kind", "identity", "--kind", "account", "--kind", "sync").wantV2(t, "no commits",
		pick(func(e truthEvent) bool { return !strings.Contains(e.JSON, `"kind":"commit"`) }))

	did, _, _ := strings.Cut(strings.TrimPrefix(want[0].JSON, `{"did":"`), `"`)
	letter := func(digit rune) rune { return digit - '0' + 'a' }
	flags := []string{zstd, "--did", did}
	for i := range 9_999 {
		flags = append(flags, "--did", "did:plc:"+strings.Map(letter, fmt.Sprintf("%024d", i)))
	}
	v2Client(t, addr, 0, flags...).wantV2(t, "10,000 DIDs",
		pick(func(e truthEvent) bool { return strings.HasPrefix(e.JSON, fmt.Sprintf(`{"did":%q`, did)) }))

	if err := d.log.TrimTo(t.Context(), d.log.Range().Bytes/2); err != nil {
		t.Fatal(err)
	}
	oldest := readFirst(t, addr, 1)[0]
	kept := pick(func(e truthEvent) bool { return e.v2Seq() >= oldest.v2Seq() })
	if len(kept) == len(want) {
		t.Fatal("nothing was trimmed")
	}
	v2Client(t, addr, 0, zstd).wantV2(t, "a replay of a trimmed log", kept)
}
