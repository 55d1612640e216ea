package graphapi

import (
	"slices"
	"strings"

	"millrace/public/internal/setexpr"
	"millrace/public/internal/viewapi"
	"millrace/replay/graph"
)

// Bounds of follows-following.
const (
	maxSubjects   = 100
	shownOfEach   = 10
	maxShownOfOne = 100
)

// request is what a client asks for, and what answers it.
type request struct {
	exprs    []*graph.Expr // complete once their sets are resolved
	sets     []setexpr.Set // of all exprs, in order
	subjects []string      // of follows-following, one for each of exprs
	limits   graph.Limits
	at       viewapi.At

	results []graph.Result
	names   []string // of the members of all results
}

// ofLinks says whether there are sets of links.
func (r *request) ofLinks() bool {
	return slices.ContainsFunc(r.sets, func(s setexpr.Set) bool { return sourceOf(s.Name).read != nil })
}

// leaf adds a set.
func (r *request) leaf(name setexpr.Name, did string) *graph.Expr {
	s := setexpr.NewSet(name, did)
	r.sets = append(r.sets, s)
	return s.Leaf
}

// params reads the parameters of a request.
type params struct{ *viewapi.Params }

// did returns a DID. The UID store judges the rest of it.
func (p *params) did(name string) string {
	s := p.Required(name)
	p.checkDID(name, s)
	return s
}

func (p *params) checkDID(name, s string) {
	if !strings.HasPrefix(s, "did:") {
		p.Fail("%s: %.200q is no DID", name, s)
	}
}

// dids returns the DIDs of a parameter that is repeated.
func (p *params) dids(name string, least, most int) []string {
	dids := p.List(name, most)
	if len(dids) < least {
		p.Fail("%s: %d values are fewer than %d, the least that is needed", name, len(dids), least)
	}
	for _, s := range dids {
		p.checkDID(name, s)
	}
	return dids
}

func (p *params) page(r *request) {
	r.limits.Limit = p.Number("limit", viewapi.DefaultLimit, 1, viewapi.MaxLimit)
	if s := p.Optional("cursor"); s != "" {
		var ok bool
		if r.limits.Build, r.limits.After, ok = parseCursor(s); !ok {
			p.Fail("cursor: %.200q is no cursor of this endpoint", s)
		}
	}
}

func parseExpr(p *params) request {
	e, sets, err := setexpr.Parse(p.Required("expr"))
	if err != nil {
		p.Fail("expr: %v", err)
	}
	return request{exprs: []*graph.Expr{e}, sets: sets}
}

func parsePage(p *params) request {
	r := parseExpr(p)
	p.page(&r)
	return r
}

func parseSample(p *params) request {
	r := parseExpr(p)
	r.limits.Limit = p.Number("limit", viewapi.DefaultLimit, 1, viewapi.MaxLimit)
	return r
}

func parseFollowsFollowing(p *params) request {
	viewer := p.did("viewer")
	r := request{subjects: p.dids("subject", 1, maxSubjects)}
	r.limits.Limit = p.Number("limit", shownOfEach, 1, maxShownOfOne)
	for _, subject := range r.subjects {
		r.exprs = append(r.exprs, graph.Join(graph.And, r.leaf(setexpr.Follows, viewer), r.leaf(setexpr.Followers, subject)))
	}
	return r
}

// parseBoth joins two sets of a DID.
func parseBoth(left setexpr.Name, op graph.Op, right setexpr.Name) func(*params) request {
	return func(p *params) (r request) {
		did := p.did("did")
		r.exprs = []*graph.Expr{graph.Join(op, r.leaf(left, did), r.leaf(right, did))}
		p.page(&r)
		return r
	}
}

func parseDoesFollow(p *params) (r request) {
	r.exprs = []*graph.Expr{r.leaf(setexpr.Follows, p.did("actor")), r.leaf(setexpr.Followers, p.did("subject"))}
	return r
}

// parseCommon intersects one set of several DIDs.
func parseCommon(name setexpr.Name) func(*params) request {
	return func(p *params) (r request) {
		var common *graph.Expr
		for _, did := range p.dids("did", 2, setexpr.MaxSets) {
			if leaf := r.leaf(name, did); common == nil {
				common = leaf
			} else {
				common = graph.Join(graph.And, common, leaf)
			}
		}
		r.exprs = []*graph.Expr{common}
		p.page(&r)
		return r
	}
}
