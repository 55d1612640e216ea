package relaysim

import (
	"net/url"
	"time"
)

// Limits of what actions take.
const (
	maxRepeat = 10_000
	maxBurst  = 1_000_000
	maxJump   = 1 << 40
)

// actions returns everything that can be made to happen: first what changes the numbers or contents
// of the stream, then what happens to connections.
func actions() []action {
	return []action{
		number("jump", "by=N: leave out N numbers; no frame is lost", "by", 1000, maxJump,
			func(r *Relay, n int64) (map[string]any, error) {
				r.producer.now.seq += n
				return map[string]any{"seq": r.producer.now.seq}, nil
			}),
		number("repeat", "n=N: send the newest N messages again, under their old numbers", "n", 1, maxRepeat,
			func(r *Relay, n int64) (map[string]any, error) {
				repeated, err := r.producer.repeat(n)
				return map[string]any{"repeated": repeated}, err
			}),
		number("again", "n=N: send the newest N frames again, under new numbers, with their revs and times", "n", 1000, maxAgain,
			func(r *Relay, n int64) (map[string]any, error) {
				again := &r.producer.traffic.again
				again.left = min(int(n), len(again.sent))
				return map[string]any{"again": again.left}, nil
			}),
		number("burst", "n=N: the next N messages at once, whatever the rate", "n", 1000, maxBurst,
			func(r *Relay, n int64) (map[string]any, error) {
				r.producer.burst += n
				return nil, nil
			}),
		number("forget", "keep=N: move the window past all but the newest N messages", "keep", 0, maxBurst,
			func(r *Relay, n int64) (map[string]any, error) {
				return map[string]any{"lost_through": r.producer.now.win.forget(n)}, nil
			}),
		number("restart-numbering", "after=N: close connections and begin again after N (0), silently", "after", 0, maxJump,
			func(r *Relay, n int64) (map[string]any, error) {
				r.producer.renumber(n)
				return map[string]any{"epoch": r.producer.now.epoch}, nil
			}),
		number("comeback", "close connections and return to the numbering before the last restart-numbering", "", 0, 0,
			func(r *Relay, _ int64) (map[string]any, error) {
				if err := r.producer.comeback(); err != nil {
					return nil, err
				}
				return map[string]any{"epoch": r.producer.now.epoch, "seq": r.producer.now.seq}, nil
			}),
		{name: "inject", help: "kind=K: send a malformed message of that kind; --list-hostile names them", run: runInject},
		lasting("quiet", "for=D: produce nothing for D; pings are answered", func(r *Relay, d time.Duration) { r.producer.stalled = time.Now().Add(d) }),
		number("disconnect", "after=BYTES: close all connections, after that much more data (0), within a frame or not", "after", 0, 1<<40,
			func(r *Relay, n int64) (map[string]any, error) {
				return map[string]any{"connections": r.disconnect(errDisconnect, int(n))}, nil
			}),
		number("too-slow", "end all connections with ConsumerTooSlow", "", 0, 0,
			func(r *Relay, _ int64) (map[string]any, error) {
				r.producer.now.win.end(errTooSlow)
				return nil, nil
			}),
		lasting("stall", "for=D: write nothing at all for D, not even pongs", func(r *Relay, d time.Duration) { r.faults.stall(d) }),
		{name: "drip", help: "for=D&bytes=N: write N bytes a second only, for D", run: runDrip},
		{name: "plc", help: "fault=NAME: from now on the PLC directory, GET /DID, fails in that way, or in none", run: runPLC},
	}
}

func runInject(r *Relay, q url.Values) (map[string]any, error) {
	kind, err := findHostile(q.Get("kind"))
	if err != nil {
		return nil, err
	}
	err = r.producer.inject(kind)
	return map[string]any{"seq": r.producer.now.seq}, err
}

func runPLC(r *Relay, q url.Values) (map[string]any, error) {
	return map[string]any{"requests": r.plc.Requests()}, r.plc.SetFault(q.Get("fault"))
}

func runDrip(r *Relay, q url.Values) (map[string]any, error) {
	d, err := paramDuration(q)
	if err != nil {
		return nil, err
	}
	bytes, err := param(q, "bytes", 1000, 1, 1<<30)
	if err != nil {
		return nil, err
	}
	r.faults.drip(int(bytes), d)
	return nil, nil
}
