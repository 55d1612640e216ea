package graphapi

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"millrace/replay/graph"
)

// benchUIDs are UIDs that are in the DIDs, so that look-ups cost little beside the graph.
type benchUIDs struct{}

func benchDID(uid uint64) string { return fmt.Sprintf("did:plc:%024d", uid) }

func (benchUIDs) LookupStrings(_ context.Context, names []string, uids []uint64) error {
	for i, name := range names {
		uids[i], _ = strconv.ParseUint(name[len("did:plc:"):], 10, 64)
	}
	return nil
}

func (benchUIDs) LookupUIDs(_ context.Context, uids []uint64, names []string) error {
	for i, uid := range uids {
		names[i] = benchDID(uid)
	}
	return nil
}

// BenchmarkFollowsFollowing asks, over one connection, which of 1,000 follows follow one of the 500
// most followed of 500,000 accounts.
func BenchmarkFollowsFollowing(b *testing.B) {
	const accounts, viewers = 500_000, 200
	g, err := graph.New(graph.Config{Sources: []string{graph.SourceFollow, graph.SourceBlock}})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	r := rand.New(rand.NewPCG(1, 2))
	for actor := uint64(1); actor <= accounts; actor++ {
		n := 20
		if actor <= viewers {
			n = 1000
		}
		changes := make([]graph.Change, n)
		for i := range changes {
			subject := 1 + uint64(math.Pow(r.Float64(), 3)*accounts)
			changes[i].Edge = graph.Edge{Actor: actor*7919%accounts + 1, Subject: subject, Record: uint64(i + 1)}
			if actor <= viewers {
				changes[i].Actor = actor + 1_000_000
			}
		}
		if err := g.Build(changes); err != nil {
			b.Fatal(err)
		}
	}
	w := &world{g: g, linksAt: g.Position()}
	mux := http.NewServeMux()
	New(Config{Graph: w, UIDs: benchUIDs{}, Log: w}).Route(mux)
	mux.HandleFunc("GET /bare", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}\n") })
	s := httptest.NewServer(mux)
	defer s.Close()
	for _, c := range []struct {
		name string
		path func() string
	}{
		{"bare", func() string { return "/bare" }},
		{"graph", func() string {
			return "/graph/follows-following?viewer=" + benchDID(1_000_001+r.Uint64N(viewers)) + "&subject=" + benchDID(1+r.Uint64N(500))
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				answer, err := s.Client().Get(s.URL + c.path())
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != 200 {
					b.Fatal(answer.StatusCode, err)
				}
				answer.Body.Close()
			}
		})
	}
}
