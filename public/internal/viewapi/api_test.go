package viewapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/consume/relaysim/testmetrics"
	"millrace/replay/references"
	"millrace/translate"
)

var (
	errOwn  = errors.New("an error of the view")
	errRead = errors.New("the view cannot be read")
)

// testLog has the streams of epochs 1 to 9.
type testLog struct{}

func (testLog) StreamOfEpoch(epoch uint32) translate.Stream {
	return translate.Stream(0xabc000 + epoch)
}
func (testLog) EpochOfStream(s translate.Stream) (uint32, bool) {
	return uint32(s) - 0xabc000, s > 0xabc000 && s < 0xabc00a
}
func (testLog) LastChange(frame references.Position) references.Position {
	if frame == (references.Position{Epoch: 3, Seq: 9}) { // no event since frame 7
		frame.Seq = 7
	}
	return frame
}

// testUIDs know UIDs below 100, and fail with err.
type testUIDs struct{ err error }

func (testUIDs) LookupStrings(context.Context, []string, []uint64) error { return nil }
func (u testUIDs) LookupUIDs(_ context.Context, uids []uint64, names []string) error {
	for i, uid := range uids {
		if uid < 100 {
			names[i] = fmt.Sprint("name ", uid)
		}
	}
	return u.err
}

func newAPI(t *testing.T, uids UIDs) (a *API, logged *bytes.Buffer, reg *prometheus.Registry) {
	t.Helper()
	logged, reg = &bytes.Buffer{}, prometheus.NewRegistry()
	a = New(Config{Kind: "tests", UIDs: uids, Log: testLog{}, Logger: slog.New(slog.NewTextHandler(logged, nil)), Registerer: reg,
		Failure: func(err error) *Error {
			if errors.Is(err, errOwn) {
				return &Error{http.StatusTeapot, "Own", "its own"}
			}
			return nil
		}})
	return a, logged, reg
}

// TestHandle: each error has its answer, is counted, and is logged if its status is 500.
func TestHandle(t *testing.T) {
	a, logged, reg := newAPI(t, testUIDs{})
	for _, tc := range []struct {
		err    error
		status int
		body   string
		logs   bool
	}{
		{nil, 200, "{}", false},
		{Invalid("x is %d, not <x>", 7), 400, `{"error":"InvalidRequest","message":"x is 7, not <x>"}`, false},
		{fmt.Errorf("ask: %w", Unavailable("later")), 503, `{"error":"Unavailable","message":"later"}`, false},
		{fmt.Errorf("ask: %w", context.Canceled), 503, `{"error":"Unavailable","message":"the request took too long: ask for less, or try again in five seconds"}`, false},
		{context.DeadlineExceeded, 503, `{"error":"Unavailable","message":"the request took too long: ask for less, or try again in five seconds"}`, false},
		{fmt.Errorf("ask: %w", errOwn), 418, `{"error":"Own","message":"its own"}`, false},
		{errRead, 500, `{"error":"InternalServerError","message":"the server cannot read its tests; its log says why"}`, true},
	} {
		logged.Reset()
		w := httptest.NewRecorder()
		a.Handler("point", func(http.Header, *http.Request) ([]byte, error) { return []byte("{}"), tc.err })(w, httptest.NewRequest("GET", "/", nil))
		want := http.Header{"Content-Type": {"application/json"}, "Cache-Control": {"no-store"}}
		if tc.status == 503 {
			want.Set("Retry-After", "5")
		}
		if d := cmp.Diff(want, w.Header()); d != "" || w.Code != tc.status || w.Body.String() != tc.body+"\n" || (logged.Len() > 0) != tc.logs {
			t.Errorf("%v: %d %s, logged %s, headers -want +got:\n%s", tc.err, w.Code, w.Body, logged, d)
		}
	}
	got := testmetrics.Values(t, reg, "millrace_public_tests_")
	const errorsOf = "errors_total "
	want := map[string]float64{errorsOf + "InvalidRequest": 1, errorsOf + "Unavailable": 3, errorsOf + "Own": 1, errorsOf + "InternalServerError": 1,
		"seconds point": 7}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("metrics, -want +got:\n%s", d)
	}
}

// TestAwait: Await waits at most as long as the request allows. Reached reports whether the view
// came to the position.
func TestAwait(t *testing.T) {
	frame := references.Position{Epoch: 3, Seq: 7}
	for name, tc := range map[string]struct {
		query string
		comes time.Duration // when the view has reached the position
		err   error         // of the view
		gone  bool          // the client has disconnected
		took  time.Duration
		want  error
	}{
		"nothing asked":   {query: "wait=1000", comes: time.Hour},
		"without events":  {query: "wait=1000&at=abc003-9-2", comes: time.Millisecond, took: time.Millisecond},
		"in time":         {query: "wait=1000&at=abc003-7-2", comes: time.Millisecond, took: time.Millisecond},
		"too late":        {query: "wait=1000&at=abc003-7-2", comes: time.Hour, took: time.Second},
		"no time":         {query: "at=abc003-7-2", comes: time.Hour},
		"failed":          {query: "wait=1000&at=abc003-7-2", err: errOwn, want: errOwn},
		"the client left": {query: "wait=1000&at=abc003-7-2", comes: time.Hour, gone: true, want: context.Canceled},
		"unknown stream":  {query: "at=fff003-7-2", want: Invalid("")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _, _ := newAPI(t, testUIDs{})
				at := NewParams(tc.query).At()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.gone {
					cancel()
				}
				begun := time.Now()
				err := a.Await(ctx, &at, func(ctx context.Context, p references.Position) error {
					if p != frame {
						t.Errorf("it waits for %v", p)
					}
					if tc.err != nil {
						return tc.err
					}
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(tc.comes):
						return nil
					}
				})
				var invalid *Error
				if took := time.Since(begun); took != tc.took || (err == nil) != (tc.want == nil) || !errors.Is(err, tc.want) && !errors.As(err, &invalid) {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}

// TestReached sets the headers that say where a view is, and refuses what is beyond it.
func TestReached(t *testing.T) {
	a, _, _ := newAPI(t, testUIDs{})
	for _, tc := range []struct {
		query   string
		inexact int64
		beyond  bool
	}{{"", 0, false}, {"at=abc003-7-2", 5, false}, {"at=abc003-9-0", 0, false}, {"at=abc003-8-0", 0, true}, {"at=abc004-1-0", 5, true}} {
		at := NewParams(tc.query).At()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_ = a.Await(ended, &at, func(context.Context, references.Position) error { return nil })
		h := http.Header{}
		err := a.Reached(h, &at, View{Since: references.Position{Epoch: 1, Seq: 2}, Position: references.Position{Epoch: 3, Seq: 7}, Inexact: tc.inexact})
		want := http.Header{"Millrace-View-Since": {"abc001-2-4294967295"}, "Millrace-View-Cursor": {"abc003-7-4294967295"}}
		if tc.inexact != 0 {
			want.Set("Millrace-Inexact-Since", "5")
		}
		var refused *Error
		if d := cmp.Diff(want, h); d != "" || (err != nil) != tc.beyond || tc.beyond && (!errors.As(err, &refused) || refused.Status != 412 || refused.Name != ErrNotReached) {
			t.Errorf("%s: %v, headers -want +got:\n%s", tc.query, err, d)
		}
	}
}

// TestTurns: so many requests have a turn, others wait for one, and none has it for too long.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := newAPI(t, testUIDs{})
		var last context.Context
		var give func()
		for range RequestsAtOnce {
			turn, done, err := a.Turn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			last, give = turn, done
		}
		begun := time.Now()
		_, _, err := a.Turn(t.Context())
		if synctest.Wait(); !strings.Contains(fmt.Sprint(err), "too many requests at once") || time.Since(begun) != requestTimeout || last.Err() == nil {
			t.Errorf("one too many: %v after %v, the turn of another: %v", err, time.Since(begun), last.Err())
		}
		give()
		turn, done, err := a.Turn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if done(); !errors.Is(turn.Err(), context.Canceled) {
			t.Errorf("a turn that was given back: %v", turn.Err())
		}
	})
}

// TestNames: what UIDs stand for comes whole or not at all.
func TestNames(t *testing.T) {
	down := errors.New("down")
	for _, tc := range []struct {
		uids  []uint64
		err   error
		want  []string
		wrong string
		logs  int // of two requests
	}{
		{nil, down, []string{}, "", 0},
		{[]uint64{7, 3}, nil, []string{"name 7", "name 3"}, "", 0},
		{[]uint64{7, 100}, nil, nil, "UID 100 is not in the UID store", 0},
		{[]uint64{7}, down, nil, "the UID store does not answer", 1},
		{[]uint64{7}, context.Canceled, nil, "context canceled", 0},
		{[]uint64{7}, context.DeadlineExceeded, nil, "deadline", 0},
	} {
		a, logged, _ := newAPI(t, testUIDs{tc.err})
		got, err := a.Names(t.Context(), tc.uids)
		_, _ = a.Names(t.Context(), tc.uids)
		if !slices.Equal(got, tc.want) || (got == nil) != (tc.want == nil) || (err != nil) != (tc.wrong != "") || err != nil && !strings.Contains(err.Error(), tc.wrong) || strings.Count(logged.String(), "look-up failed") != tc.logs {
			t.Errorf("%v: %q, %v, logged %s", tc.uids, got, err, logged)
		}
	}
}

// TestNoLogger: a Logger need not be set.
func TestNoLogger(t *testing.T) {
	a := New(Config{Kind: "tests", UIDs: testUIDs{}, Log: testLog{}, Failure: func(error) *Error { return nil }})
	w := httptest.NewRecorder()
	if a.Handler("point", func(http.Header, *http.Request) ([]byte, error) { return nil, errRead })(w, httptest.NewRequest("GET", "/", nil)); w.Code != 500 {
		t.Errorf("without a Logger: %d", w.Code)
	}
}
