package graphapi

import (
	"context"
	"errors"
	"slices"
	"strings"

	"millrace/intern"
	"millrace/public/internal/setexpr"
	"millrace/public/internal/viewapi"
	"millrace/replay/graph"
	"millrace/replay/references"
)

// reached returns how far the graph is; nil: it is being built.
func (a *API) reached() *references.Position {
	g, err := a.cfg.Graph.Graph()
	if err != nil {
		return nil
	}
	at := g.Position()
	return &at
}

// setSource is where the sets of a name come from: read takes them from links, or, if it is nil,
// the graph has them.
type setSource struct {
	source    string // of their references
	direction graph.Direction
	read      func(l *linkReader, key linkKey, source uint32) ([]uint64, error)
}

const sourceLike = "app.bsky.feed.like:subject.uri"

// sourceOf returns the source of a name. No server supports a name that has none.
func sourceOf(n setexpr.Name) setSource {
	return [setexpr.Names]setSource{
		setexpr.Follows:   {source: graph.SourceFollow, direction: graph.Out},
		setexpr.Followers: {source: graph.SourceFollow, direction: graph.In},
		setexpr.Blocks:    {source: graph.SourceBlock, direction: graph.Out},
		setexpr.BlockedBy: {source: graph.SourceBlock, direction: graph.In},
		setexpr.Members:   {source: "app.bsky.graph.listitem:list", read: (*linkReader).members},
		setexpr.Likers:    {source: sourceLike, read: (*linkReader).accounts},
		setexpr.Reposters: {source: "app.bsky.feed.repost:subject.uri", read: (*linkReader).accounts},
		setexpr.Liked:     {source: sourceLike, read: (*linkReader).liked},
	}[n]
}

// resolve looks up the arguments of all sets in one batch, reads the sets of links, and makes the
// expressions of the graph. oldest is the position of the oldest set of links, if there is one; if
// a name has no UID, that of the graph before the look-up, or an older one.
func (a *API) resolve(ctx context.Context, r *request) (oldest *references.Position, err error) {
	var names []string
	r.eachSet(func(s setexpr.Set) {
		if names = append(names, s.Argument); s.Name == setexpr.Members {
			names = append(names, authority(s.Argument))
		}
	})
	before := a.reached()
	uids := make([]uint64, len(names))
	if err := a.cfg.UIDs.LookupStrings(ctx, names, uids); err != nil {
		if invalid, ok := errors.AsType[*intern.InvalidError](err); ok {
			return nil, viewapi.Invalid("%.200q is neither a DID nor an AT URI: %s", names[invalid.Index], invalid.Reason)
		}
		return nil, a.StoreFailure(err)
	}
	l := &linkReader{api: a, ctx: ctx, at: &r.at}
	if slices.Contains(uids, 0) {
		l.oldest = before // the set may have got its UID, and members, since
	}
	b := &builder{a, l, uids, nil}
	for _, e := range r.query.exprs {
		r.exprs = append(r.exprs, b.expr(e))
	}
	return l.oldest, errors.Join(b.err, l.close())
}

// authority returns the DID of an AT URI.
func authority(uri string) string {
	did, _, _ := strings.Cut(strings.TrimPrefix(uri, "at://"), "/")
	return did
}

// builder turns parsed expressions into those of package graph. It keeps the first error.
type builder struct {
	api   *API
	links *linkReader
	uids  []uint64 // of the arguments that next has yet to return
	err   error
}

func (b *builder) next() uint64 {
	uid := b.uids[0]
	b.uids = b.uids[1:]
	return uid
}

func (b *builder) expr(e *setexpr.Expr) *graph.Expr {
	if e.Op == setexpr.Leaf {
		return b.leaf(e.Set)
	}
	joined := b.expr(&e.Operands[0])
	for i := 1; i < len(e.Operands); i++ {
		op := graph.Or
		if e.Op == setexpr.And {
			op = graph.And
		}
		if e.Operands[i].Subtracted {
			op = graph.AndNot
		}
		joined = graph.Join(op, joined, b.expr(&e.Operands[i]))
	}
	return joined
}

func (b *builder) leaf(s setexpr.Set) *graph.Expr {
	uid := b.next()
	if from := sourceOf(s.Name); from.read == nil {
		number, _ := b.api.cfg.Graph.Source(from.source)
		return graph.Of(number, from.direction, uid)
	}
	key := linkKey{name: s.Name, uid: uid}
	if s.Name == setexpr.Members {
		key.owner = b.next()
	}
	if b.err != nil {
		return graph.Given(nil)
	}
	var uids []uint64
	uids, b.err = b.links.set(key)
	return graph.Given(uids)
}
