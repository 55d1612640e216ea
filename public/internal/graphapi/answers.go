package graphapi

import (
	"context"
	"math/rand/v2"

	"millrace/replay/graph"
)

func askPage(ctx context.Context, g *graph.Graph, r *request) ([]graph.Result, error) {
	return g.EvalAll(ctx, r.exprs, r.limits)
}

func askCount(ctx context.Context, g *graph.Graph, r *request) ([]graph.Result, error) {
	result, err := g.Count(ctx, r.exprs[0], r.limits)
	return []graph.Result{result}, err
}

func askSample(ctx context.Context, g *graph.Graph, r *request) ([]graph.Result, error) {
	result, err := g.Sample(ctx, r.exprs[0], r.limits, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	return []graph.Result{result}, err
}

func askHas(ctx context.Context, g *graph.Graph, r *request) ([]graph.Result, error) {
	actor, subject := r.exprs[0].Set, r.exprs[1].Set
	result, err := g.Has(ctx, actor.Source, actor.UID, subject.UID)
	return []graph.Result{result}, err
}

// The answers. No list is null.

// completeness ends every answer. One that static edges affect is not called complete.
type completeness struct {
	Complete bool `json:"complete"`
	Static   bool `json:"static,omitempty"`
}

func (r *request) completeness() completeness {
	c := completeness{Complete: true}
	for i := range r.results {
		c.Complete = c.Complete && r.results[i].Complete
		c.Static = c.Static || r.results[i].Static
	}
	c.Complete = c.Complete && !c.Static
	return c
}

type countAnswer struct {
	Count int `json:"count"`
	completeness
}

func answerCount(r *request) any { return countAnswer{r.results[0].Count, r.completeness()} }

// members is how many members a set has, and some of them.
type members struct {
	Count   int      `json:"count"`
	Members []string `json:"members"`
}

type sampleAnswer struct {
	members
	completeness
}

func answerSample(r *request) any {
	return sampleAnswer{members{r.results[0].Count, r.names}, r.completeness()}
}

type pageAnswer struct {
	members
	Cursor *string `json:"cursor"` // null on the last page
	completeness
}

func answerPage(r *request) any {
	page := &r.results[0]
	return pageAnswer{members{page.Count, r.names}, encodeCursor(page.Build, page.Next), r.completeness()}
}

type followsAnswer struct {
	Follows bool `json:"follows"`
	completeness
}

func answerFollows(r *request) any { return followsAnswer{r.results[0].Count > 0, r.completeness()} }

type subject struct {
	DID string `json:"did"`
	members
}

type subjectsAnswer struct {
	Subjects []subject `json:"subjects"`
	completeness
}

func answerSubjects(r *request) any {
	answer := subjectsAnswer{make([]subject, len(r.subjects)), r.completeness()}
	names := r.names
	for i, did := range r.subjects {
		n := len(r.results[i].UIDs)
		answer.Subjects[i] = subject{did, members{r.results[i].Count, names[:n]}}
		names = names[n:]
	}
	return answer
}
