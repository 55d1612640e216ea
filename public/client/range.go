package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// maxRangeBytes bounds the answer: a thousand gaps are some 100 KB.
const maxRangeBytes = 4 << 20

// Point is a place in a server's log.
type Point struct {
	TimeUS int64  `json:"time_us"`
	Cursor string `json:"cursor"` // a position
}

// Gap lies where the relay may have lost events.
type Gap struct {
	From   string `json:"from"` // positions
	To     string `json:"to"`
	TimeUS int64  `json:"time_us"`
}

// LogRange is what a server's log holds.
type LogRange struct {
	Oldest, Newest *Point // nil: the log is empty
	Retention      time.Duration
	Gaps           []Gap // the newest of them, oldest first
}

// Range asks the server what its log holds; of several, the first that answers. Plain Jetstreams
// cannot say: *RefusedError.
func (c *Client) Range(ctx context.Context) (r LogRange, err error) {
	for _, s := range c.servers {
		if r, err = c.rangeOf(ctx, c.http, s); err == nil {
			return r, nil
		}
	}
	return r, err
}

func (c *Client) rangeOf(ctx context.Context, hc *http.Client, s *server) (LogRange, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	body, err := get(ctx, hc, c.header, endpoint(s.subscribe, "/cursors"), maxRangeBytes)
	if err != nil {
		return LogRange{}, fmt.Errorf("client: range of the log: %w", err)
	}
	var answer struct {
		Oldest, Newest *Point
		RetentionS     *int64 `json:"retention_s"` // nil: it is another program's answer
		Gaps           []Gap
	}
	if json.Unmarshal(body, &answer) != nil || answer.RetentionS == nil {
		return LogRange{}, fmt.Errorf("client: range of the log: %w", &RefusedError{Status: http.StatusOK, Reason: "it is no millrace's answer"})
	}
	return LogRange{
		Oldest: answer.Oldest, Newest: answer.Newest, Retention: time.Duration(*answer.RetentionS) * time.Second, Gaps: answer.Gaps,
	}, nil
}
