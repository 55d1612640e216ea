package graphapi

import (
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

// query is what a request asks for.
type query struct {
	exprs    []*setexpr.Expr
	subjects []string // of follows-following, one for each of exprs
	limits   graph.Limits
	at       viewapi.At
}

// eachSet calls fn with the sets in order.
func (q *query) eachSet(fn func(setexpr.Set)) {
	var each func(e *setexpr.Expr)
	each = func(e *setexpr.Expr) {
		if e.Op == setexpr.Leaf {
			fn(e.Set)
		}
		for i := range e.Operands {
			each(&e.Operands[i])
		}
	}
	for _, e := range q.exprs {
		each(e)
	}
}

// ofLinks says whether there are sets of links.
func (q *query) ofLinks() (yes bool) {
	q.eachSet(func(s setexpr.Set) {
		yes = yes || sourceOf(s.Name).read != nil
	})
	return yes
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

func (p *params) page(q *query) {
	q.limits.Limit = p.Number("limit", viewapi.DefaultLimit, 1, viewapi.MaxLimit)
	if s := p.Optional("cursor"); s != "" {
		var ok bool
		if q.limits.Build, q.limits.After, ok = parseCursor(s); !ok {
			p.Fail("cursor: %.200q is no cursor of this endpoint", s)
		}
	}
}

func parseExpr(p *params) query {
	e, err := setexpr.Parse(p.Required("expr"))
	if err != nil {
		p.Fail("expr: %v", err)
		e = &setexpr.Expr{}
	}
	return query{exprs: []*setexpr.Expr{e}}
}

func parsePage(p *params) query {
	q := parseExpr(p)
	p.page(&q)
	return q
}

func parseSample(p *params) query {
	q := parseExpr(p)
	q.limits.Limit = p.Number("limit", viewapi.DefaultLimit, 1, viewapi.MaxLimit)
	return q
}

func leaf(name setexpr.Name, did string) setexpr.Expr {
	return setexpr.Expr{Set: setexpr.Set{Name: name, Argument: did}}
}

func and(operands ...setexpr.Expr) *setexpr.Expr {
	return &setexpr.Expr{Op: setexpr.And, Operands: operands}
}

func parseFollowsFollowing(p *params) query {
	viewer := p.did("viewer")
	q := query{subjects: p.dids("subject", 1, maxSubjects)}
	q.limits.Limit = p.Number("limit", shownOfEach, 1, maxShownOfOne)
	for _, subject := range q.subjects {
		q.exprs = append(q.exprs, and(leaf(setexpr.Follows, viewer), leaf(setexpr.Followers, subject)))
	}
	return q
}

func parseMutuals(p *params) query {
	did := p.did("did")
	q := query{exprs: []*setexpr.Expr{and(leaf(setexpr.Follows, did), leaf(setexpr.Followers, did))}}
	p.page(&q)
	return q
}

func parseNotFollowing(p *params) query {
	did := p.did("did")
	follows := leaf(setexpr.Follows, did)
	follows.Subtracted = true
	q := query{exprs: []*setexpr.Expr{and(leaf(setexpr.Followers, did), follows)}}
	p.page(&q)
	return q
}

func parseDoesFollow(p *params) query {
	actor, subject := leaf(setexpr.Follows, p.did("actor")), leaf(setexpr.Followers, p.did("subject"))
	return query{exprs: []*setexpr.Expr{&actor, &subject}}
}

func parseCommonFollows(p *params) query { return parseCommon(p, setexpr.Follows) }

func parseCommonFollowers(p *params) query { return parseCommon(p, setexpr.Followers) }

func parseCommon(p *params, name setexpr.Name) query {
	var leaves []setexpr.Expr
	for _, did := range p.dids("did", 2, setexpr.MaxSets) {
		leaves = append(leaves, leaf(name, did))
	}
	q := query{exprs: []*setexpr.Expr{and(leaves...)}}
	p.page(&q)
	return q
}
