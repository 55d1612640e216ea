package graphapi

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strconv"

	"millrace/replay/graph"
)

func (r *request) limits() graph.Limits {
	return graph.Limits{Limit: r.limit, After: r.after, Build: r.build, MaxCost: r.maxCost}
}

func askPage(ctx context.Context, g *graph.Graph, r *request) ([]graph.Result, error) {
	return g.EvalAll(ctx, r.exprs, r.limits())
}

func askCount(ctx context.Context, g *graph.Graph, r *request) ([]graph.Result, error) {
	result, err := g.Count(ctx, r.exprs[0], r.limits())
	return []graph.Result{result}, err
}

func askSample(ctx context.Context, g *graph.Graph, r *request) ([]graph.Result, error) {
	result, err := g.Sample(ctx, r.exprs[0], r.limits(), rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	return []graph.Result{result}, err
}

func askHas(ctx context.Context, g *graph.Graph, r *request) ([]graph.Result, error) {
	actor, subject := r.exprs[0].Set, r.exprs[1].Set
	result, err := g.Has(ctx, actor.Source, actor.UID, subject.UID)
	return []graph.Result{result}, err
}

// append returns the answer as JSON: the members that write appends, then those that every answer
// has. One that static edges affect is not called complete.
func (r *request) append(write func([]byte, *request) []byte) []byte {
	body := make([]byte, 0, 128+40*(len(r.names)+len(r.subjects)))
	body = write(append(body, '{'), r)
	complete, static := true, false
	for i := range r.results {
		complete = complete && r.results[i].Complete
		static = static || r.results[i].Static
	}
	body = append(body, `,"complete":`...)
	body = strconv.AppendBool(body, complete && !static)
	if static {
		body = append(body, `,"static":true`...)
	}
	return append(body, '}')
}

func writeCount(dst []byte, r *request) []byte { return appendCount(dst, &r.results[0]) }

func appendCount(dst []byte, result *graph.Result) []byte {
	return strconv.AppendInt(append(dst, `"count":`...), int64(result.Count), 10)
}

func writeSample(dst []byte, r *request) []byte {
	return appendMembers(appendCount(dst, &r.results[0]), r.names)
}

func writePage(dst []byte, r *request) []byte {
	return appendCursor(append(writeSample(dst, r), `,"cursor":`...), r.results[0].Build, r.results[0].Next)
}

func writeFollows(dst []byte, r *request) []byte {
	return strconv.AppendBool(append(dst, `"follows":`...), r.results[0].Count > 0)
}

func writeSubjects(dst []byte, r *request) []byte {
	dst = append(dst, `"subjects":[`...)
	names := r.names
	for i, did := range r.subjects {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(append(dst, `{"did":`...), did)
		n := len(r.results[i].UIDs)
		dst = appendMembers(appendCount(append(dst, ','), &r.results[i]), names[:n])
		dst, names = append(dst, '}'), names[n:]
	}
	return append(dst, ']')
}

func appendMembers(dst []byte, names []string) []byte {
	dst = append(dst, `,"members":[`...)
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, name)
	}
	return append(dst, ']')
}

// appendString appends a DID or AT URI as JSON: as it is, but for rare characters.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // strings are always encoded
			return append(dst, quoted...)
		}
	}
	dst = append(append(dst, '"'), s...)
	return append(dst, '"')
}
