package main

import (
	"fmt"
	"time"

	"millrace/consume"
	"millrace/intern"
	"millrace/public"
)

const (
	// maxReadyLag is how old the oldest frame between the socket and the disk may be on a server
	// that calls itself ready.
	maxReadyLag = 10 * time.Second
	// maxReadyRelayLag is how old frames may be when they come: above it the server catches up on a
	// backlog.
	maxReadyRelayLag = time.Minute
)

// health answers /readyz.
func (d *daemon) health() []public.Check {
	checks := []public.Check{relayCheck(d.client.Status()), lagCheck(d.pipeline.Lag(), d.pipeline.RelayLag()), d.disk.freeCheck()}
	if d.uids != nil {
		checks = append(checks, uidCheck(d.uids.interner.Status()))
	}
	if d.graph != nil {
		p := d.graph.Progress()
		checks = append(checks, public.Check{Name: "graph_built", OK: p.Complete, Detail: p.String()})
	}
	return checks
}

func relayCheck(s consume.Status) public.Check {
	c := public.Check{Name: "relay_connected", OK: s.Connected && !s.Suspect}
	switch {
	case s.Suspect:
		c.Detail = fmt.Sprintf("%s sends numbers at or below seq %d; a new epoch begins after --epoch-patience", s.Host, s.Seq)
	case !s.Connected && s.LastError != "":
		c.Detail = fmt.Sprintf("%s: %s", s.Host, s.LastError)
	case !s.Connected:
		c.Detail = fmt.Sprintf("%s: no connection yet", s.Host)
	default:
		c.Detail = fmt.Sprintf("%s, epoch %d, seq %d", s.Host, s.Epoch, s.Seq)
	}
	return c
}

// lagCheck takes the age of the oldest frame that is not durable, and how old frames are when they
// come.
func lagCheck(lag, relay time.Duration) public.Check {
	return public.Check{
		Name: "lag_small", OK: lag < maxReadyLag && relay < maxReadyRelayLag,
		Detail: fmt.Sprintf("frames are %.1f s old when they come, and the oldest one not yet durable is %.3f s old",
			relay.Seconds(), lag.Seconds()),
	}
}

func (d *diskWatch) freeCheck() public.Check {
	c := public.Check{Name: "disk_free", OK: true}
	least := d.least.Load()
	if least == nil {
		return c
	}
	has := fmt.Sprintf("%d MiB are free in %s", least.bytes>>20, least.dir)
	switch state := diskState(d.state.Load()); {
	case state == diskFull:
		c.OK, c.Detail = false, has+", less than half of --min-free-disk: reading the relay is paused until there is room"
	case state == diskShort && least.log:
		c.OK, c.Detail = false, has+", less than --min-free-disk: the log is trimmed early until there is room"
	case state == diskShort:
		c.OK, c.Detail = false, has+", less than --min-free-disk, and what is there cannot be trimmed: free some room"
	}
	return c
}

func uidCheck(s intern.Status) public.Check {
	c := public.Check{Name: "uid_store_reachable", OK: s.Reachable}
	if !s.Reachable {
		c.Detail = fmt.Sprintf("since %s: %v", s.Since.UTC().Format(time.RFC3339), s.Err)
	}
	return c
}
