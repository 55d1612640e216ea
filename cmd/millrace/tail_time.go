package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"millrace/public/client"
)

// parseAgo reads a duration; days are 24 hours.
func parseAgo(s string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		ok = err == nil && n >= 0 && n < 36500
		return time.Duration(n * float64(24*time.Hour)), ok
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}

// parseMicros reads Unix microseconds, of 16 digits: shorter numbers are something else.
func parseMicros(s string) (int64, bool) {
	us, err := strconv.ParseInt(s, 10, 64)
	return us, err == nil && len(s) == 16
}

// end is where the output ends.
type end struct {
	timeUS int64 // with the last event up to that stamp; math.MaxInt64: it does not
	live   bool  // when all that the server has was read
}

func (e end) never() bool { return !e.live && e.timeUS == math.MaxInt64 }

// passed says whether the server has all up to the end.
func (e end) passed(now time.Time) bool {
	return e.live || !now.Before(time.UnixMicro(e.timeUS).Add(endGrace))
}

// parseUntil reads --until. What "now" is, is for the server to say.
func parseUntil(s string, now time.Time) (end, error) {
	switch s {
	case "":
		return end{timeUS: math.MaxInt64}, nil
	case "live":
		return end{timeUS: math.MaxInt64, live: true}, nil
	case "now":
		return end{timeUS: now.UnixMicro(), live: true}, nil
	}
	us, err := parseMoment(s, now)
	if err != nil {
		return end{}, fmt.Errorf("--until %w", err)
	}
	// If us is past already, live events come after it.
	return end{timeUS: us, live: us <= now.UnixMicro()}, nil
}

// askNewest asks the server for the newest event that it has, again and again unless once, with
// pauses that grow. A plain Jetstream cannot say: then it is now.
func askNewest(ctx context.Context, c *client.Client, stderr io.Writer, once bool, now int64) (int64, error) {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		r, err := c.Range(ctx)
		var refused *client.RefusedError
		switch {
		case err == nil && r.Newest == nil:
			return 0, nil
		case err == nil:
			return r.Newest.TimeUS, nil
		case errors.As(err, &refused) && refused.Status < 500 && refused.Status != 429:
			return now, nil
		case once:
			return 0, err
		}
		wait := pause
		if refused != nil {
			wait = max(pause, refused.RetryAfter)
		}
		printLine(stderr, "millrace tail: %v; asking again in %.0f s", err, wait.Seconds())
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}
