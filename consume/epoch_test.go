package consume

import (
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/consume/relaysim/testwait"
)

// restarted is a relay whose numbering has restarted: one frame every 10 s from seq first on, all
// kept. Like indigo's, it goes live if the cursor is beyond its head; if announce is set it says
// FutureCursor instead.
type restarted struct {
	first    int64
	began    time.Time
	announce bool
}

func (s *restarted) head() int64 { return s.first + int64(time.Since(s.began)/(10*time.Second)) }

func (s *restarted) serve(p *peer) {
	next := s.head() + 1
	if cursor, err := strconv.ParseInt(p.cursor, 10, 64); err == nil && cursor < next {
		next = max(cursor+1, s.first)
	} else if err == nil && s.announce {
		p.send(errorFrameOf(errorFutureCursor))
		p.wait()
		return
	}
	for {
		for ; next <= s.head(); next++ {
			if !p.commits(next, next) {
				return
			}
		}
		select {
		case <-time.After(time.Second):
		case <-p.gone:
			return
		}
	}
}

// wantEpoch checks that frames hold 1001 of epoch 0 and then all of epoch 1 from one not above
// latest on. The first is with a gap.
func wantEpoch(t *testing.T, frames []Frame, latest int64) {
	t.Helper()
	if frames[0].Seq != 1001 || frames[0].Epoch != 0 {
		t.Fatalf("frames begin with %s", show(frames[:1]))
	}
	first := frames[1].Seq
	if first > latest {
		t.Errorf("the epoch begins at %d, the relay was first seen at %d", first, latest)
	}
	for i, f := range frames[1:] {
		if f.Epoch != 1 || f.Seq != first+int64(i) || (f.Gap != nil) != (i == 0) {
			t.Fatalf("frame %d of the new epoch: %s", i, show([]Frame{f}))
		}
	}
	if diff := cmp.Diff(&Gap{FromEpoch: 0, From: 1001, ToEpoch: 1, To: first}, frames[1].Gap); diff != "" {
		t.Errorf("gap (-want +got):\n%s", diff)
	}
}

// TestRestart lets a relay's numbering restart, in every way it may show.
func TestRestart(t *testing.T) {
	for _, tt := range []struct {
		name     string
		announce bool
		http     bool // announced before the upgrade
		mid      bool // in the middle of the first connection
	}{
		{name: "silently"},
		{name: "announced", announce: true},
		{name: "announced over HTTP", announce: true, http: true},
		{name: "in the middle of a connection", mid: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &restarted{first: 1, announce: tt.announce}
				r, l := pipeRelay(t, func(p *peer) {
					if p.n > 1 {
						s.serve(p)
						return
					}
					p.commits(1001, 1001)
					s.began = time.Now()
					if tt.mid {
						p.cursor = "5000"
						s.serve(p)
					}
				})
				if tt.http {
					r.refusal = func(n int, w http.ResponseWriter) bool {
						cursor, err := strconv.ParseInt(r.cursors()[n-1], 10, 64)
						future := n > 1 && err == nil && cursor > s.head()
						if future {
							http.Error(w, `{"error":"FutureCursor","message":"Cursor in the future."}`, http.StatusBadRequest)
						}
						return future
					}
				}
				began := time.Now()
				c := start(t, l, Config{Cursor: 1000})
				testwait.Elapse(4 * time.Minute)
				if st := c.Status(); !st.Suspect || st.Epoch != 0 || st.Seq != 1001 {
					t.Fatalf("status after 4 minutes: %+v", st)
				}
				wantMetric(t, c, "suspect", "", 1)
				frames := c.until(t, 60)
				if took := time.Since(began); took < 5*time.Minute || took > 12*time.Minute {
					t.Errorf("took %v", took)
				}
				wantEpoch(t, frames, 3)
				wantMetric(t, c, "epochs_begun_total", "", 1)
				wantMetric(t, c, "epoch", "", 1)
				wantMetric(t, c, "suspect", "", 0)
				wantMetric(t, c, "gaps_total", "", 1)
				wantMetric(t, c, "gap_frames_total", "", 0)
				wantMetric(t, c, "reconnects_total", string(causeNewEpoch), 1)
				if got := c.metric(t, "reconnects_total", string(causeRecheck)); got < 3 || got > rechecks {
					t.Errorf("%v rechecks", got)
				}
				if st := c.Status(); st.Suspect || st.Epoch != 1 {
					t.Errorf("status: %+v", st)
				}
			})
		})
	}
}

// TestRestartTwice restarts the numbering again before anything of the new epoch was handed over.
func TestRestartTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *restarted
		_, l := pipeRelay(t, func(p *peer) {
			switch {
			case s == nil:
				p.commits(1001, 1001)
				s = &restarted{first: 500, began: time.Now()}
			case p.cursor != "1001" && s.first == 500:
				s = &restarted{first: 1, began: time.Now()}
			default:
				s.serve(p)
			}
		})
		c := start(t, l, Config{Cursor: 1000})
		frames := c.until(t, 10)
		if want := "0/1001 [0/1001..2/"; show(frames)[:len(want)] != want {
			t.Errorf("frames %s", show(frames))
		}
		if frames[1].Seq > 2 {
			t.Errorf("begins at %d", frames[1].Seq)
		}
	})
}

// TestQuietRestart has a relay with a frame an hour, whose first suspect comes long before the
// second.
func TestQuietRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := pipeRelay(t, func(p *peer) {
			switch {
			case p.n == 1:
				p.commits(5, 5)
				p.wait()
			case p.cursor == "1000":
				select {
				case <-p.gone:
				case <-time.After(time.Hour):
					p.commits(6, 6)
					p.wait()
				}
			case p.cursor == "4":
				p.commits(5, 6)
				p.wait()
			}
		})
		c := start(t, l, Config{Cursor: 1000})
		wantFrames(t, c, 2, "[0/1000..1/5] 1/5 1/6")
	})
}

// TestNoRestart holds what looks like a restart and is none: no epoch begins, nothing is lost.
func TestNoRestart(t *testing.T) {
	const long = 30 * time.Minute
	for _, tt := range []struct {
		name    string
		script  func(p *peer)
		want    string
		n       int
		resumes float64
	}{{
		name: "a cursor that is inclusive, then silence",
		script: func(p *peer) {
			p.commits(1000, 1000)
			select {
			case <-time.After(long):
				p.commits(1001, 1001)
				p.wait()
			case <-p.gone:
			}
		},
		want: "0/1001", n: 1,
	}, {
		name: "a replay from well below, then silence",
		script: func(p *peer) {
			p.commits(900, 1000)
			select {
			case <-time.After(long):
				p.commits(1001, 1001)
				p.wait()
			case <-p.gone:
			}
		},
		want: "0/1001", n: 1,
	}, {
		name: "one frame again, out of order, then silence on the same connection",
		script: func(p *peer) {
			if p.n > 1 {
				return
			}
			p.commits(1001, 1002)
			p.commits(1000, 1000)
			select {
			case <-time.After(long):
				p.commits(1004, 1004)
				p.wait()
			case <-p.gone:
			}
		},
		want: "0/1001 0/1002 0/1004", n: 3,
	}, {
		name: "two frames again, out of order, then silence",
		script: func(p *peer) {
			if p.n == 1 {
				p.commits(1001, 1002)
				p.commits(999, 1000)
				p.wait()
				return
			}
			select {
			case <-time.After(long):
				p.commits(1003, 1003)
				p.wait()
			case <-p.gone:
			}
		},
		want: "0/1001 0/1002 0/1003", n: 3,
	}, {
		name: "a host that comes back with its old numbering",
		script: func(p *peer) {
			if p.n == 1 {
				p.commits(1, 9)
				p.wait()
				return
			}
			p.commits(1001, 1003) // asked for 1000
			p.wait()
		},
		want: "0/1001 0/1002 0/1003", n: 3,
	}, {
		name: "the same with a window lost",
		script: func(p *peer) {
			if p.n == 1 {
				p.commits(1, 9)
				p.wait()
				return
			}
			p.commits(1005, 1006)
			p.wait()
		},
		want: "[0/1000..0/1005] 0/1005 0/1006", n: 2,
	}, {
		name: "the same after FutureCursor, seen live",
		script: func(p *peer) {
			switch {
			case p.n == 1:
				p.send(errorFrameOf(errorFutureCursor))
			case p.cursor == "live":
				p.commits(1007, 1008)
			case p.cursor == "1000":
				p.commits(1001, 1008)
			}
			p.wait()
		},
		want: "0/1001 0/1002 0/1003 0/1004 0/1005 0/1006 0/1007 0/1008", n: 8, resumes: 1,
	}, {
		name: "the same, but just the next frame is live",
		script: func(p *peer) {
			if p.n == 1 {
				p.send(errorFrameOf(errorFutureCursor))
			} else {
				p.commits(1001, 1002)
			}
			p.wait()
		},
		want: "0/1001 0/1002", n: 2,
	}, {
		name: "back and forth within a connection, frames left out",
		script: func(p *peer) {
			if p.n == 1 {
				p.commits(1001, 1001)
				p.commits(1, 3)
				p.commits(1005, 1006)
			} else {
				p.commits(1002, 1006)
			}
			p.wait()
		},
		want: "0/1001 0/1002 0/1003 0/1004 0/1005 0/1006", n: 6, resumes: 1,
	}, {
		name: "a relay that calls every cursor future and is ahead all the same",
		script: func(p *peer) {
			if p.cursor == "1000" {
				p.send(errorFrameOf(errorFutureCursor))
			} else {
				p.commits(1005, 1006)
			}
			p.wait()
		},
		want: "[0/1000..0/1005] 0/1005 0/1006", n: 2, resumes: maxResumes,
	}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l := pipeRelay(t, tt.script)
				c := start(t, l, Config{Cursor: 1000})
				wantFrames(t, c, tt.n, tt.want)
				testwait.Elapse(2 * long)
				if st := c.Status(); st.Suspect || st.Epoch != 0 {
					t.Errorf("status: %+v", st)
				}
				wantMetric(t, c, "reconnects_total", string(causeResume), tt.resumes)
				wantMetric(t, c, "epochs_begun_total", "", 0)
			})
		})
	}
}

// TestOvertaken restarts the numbering so little below the position that it passes it within the
// patience. What stands under the last number decides, and nothing is lost.
func TestOvertaken(t *testing.T) {
	for _, tt := range []struct {
		name  string
		frame func(seq int64) []byte // of the relay after its restart
		want  string
	}{
		{"another repo", func(seq int64) []byte { return frameBy("did:plc:other", TypeCommit, seq, 20) },
			"0/1001 [0/1001..1/990] 1/990 1/991 1/992 1/993 1/994 1/995 1/996 1/997 1/998 1/999 1/1000 1/1001 1/1002 1/1003"},
		{"another type", func(seq int64) []byte { return frameOf(TypeSync, seq, 20) },
			"0/1001 [0/1001..1/990] 1/990 1/991 1/992 1/993 1/994 1/995 1/996 1/997 1/998 1/999 1/1000 1/1001 1/1002 1/1003"},
		{"the same event, otherwise encoded", func(seq int64) []byte { return frameOf(TypeCommit, seq, 21) }, "0/1001 0/1002 0/1003"},
		{"unreadable behind the seq", func(seq int64) []byte { return commitFrame(seq)[:38] }, "0/1001 0/1002 0/1003"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l := pipeRelay(t, func(p *peer) {
					if p.n == 1 {
						p.commits(1001, 1001)
						return
					}
					first := int64(990) // whatever the cursor: the first time it is beyond the head
					for s := first; s <= 1003; s++ {
						p.send(tt.frame(s))
					}
					p.wait()
				})
				c := start(t, l, Config{Cursor: 1000})
				began := time.Now()
				wantFrames(t, c, 3, tt.want)
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// TestAlternating has a relay that shows the events of two numberings in turn under the same
// numbers. The first change is a restart, which is followed at once; the many that follow are
// backed off.
func TestAlternating(t *testing.T) {
	const most = 500 // bounds the loop that there must not be
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			if p.n == 1 {
				p.commits(1001, 1001)
			}
			for _, repo := range []string{"did:plc:one", "did:plc:other"} {
				for s := int64(990); s <= 1001 && p.n < most; s++ {
					if !p.send(frameBy(repo, TypeCommit, s, 20)) {
						return
					}
				}
			}
			p.wait()
		})
		c := start(t, l, Config{Cursor: 1000})
		testwait.Elapse(10 * time.Minute)
		r.mu.Lock()
		times := slices.Clone(r.times)
		r.mu.Unlock()
		if n := len(times); n < 20 || n > 100 {
			t.Fatalf("%d connections in 10 minutes", n)
		}
		if d := times[1].Sub(times[0]); d != 0 {
			t.Errorf("the first new epoch waited for %v", d)
		}
		if got := c.metric(t, "epochs_begun_total", ""); got < float64(len(times)-2) {
			t.Errorf("%v epochs in %d connections", got, len(times))
		}
	})
}

// TestFutureStart has an operator's start beyond the relay's head: there is nothing to wait for.
func TestFutureStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := pipeRelay(t, func(p *peer) {
			switch {
			case p.cursor == "9000":
				p.send(errorFrameOf(errorFutureCursor))
			case p.n == 2:
				return
			default:
				p.commits(50, 51)
			}
			p.wait()
		})
		c := start(t, l, Config{Start: ptr[int64](9000)})
		wantFrames(t, c, 2, "0/50 0/51")
		wantCursors(t, r, "9000", "live", "live")
		if c.Status().Suspect {
			t.Error("suspect")
		}
	})
}
