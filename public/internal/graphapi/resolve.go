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

// resolve looks up the arguments of all sets in one batch, reads the sets of links, and fills the
// leaves of the expressions. oldest is the position of the oldest set of links, if there is one; if
// a name has no UID, that of the graph before the look-up, or an older one.
func (a *API) resolve(ctx context.Context, r *request) (oldest *references.Position, err error) {
	var names []string
	for _, s := range r.sets {
		if names = append(names, s.Argument); s.Name == setexpr.Members {
			names = append(names, authority(s.Argument))
		}
	}
	var before *references.Position // nil: the graph is being built
	if g, err := a.cfg.Graph.Graph(); err == nil {
		before = new(g.Position())
	}
	uids := make([]uint64, len(names))
	if err := a.cfg.UIDs.LookupStrings(ctx, names, uids); err != nil {
		if invalid, ok := errors.AsType[*intern.InvalidError](err); ok {
			return nil, viewapi.Invalid("%.200q is neither a DID nor an AT URI: %s", names[invalid.Index], invalid.Reason)
		}
		return nil, a.StoreFailure(err)
	}
	l := &linkReader{api: a, ctx: ctx, at: &r.at}
	defer func() { err = errors.Join(err, l.close()) }()
	if slices.Contains(uids, 0) {
		l.oldest = before // the set may have got its UID, and members, since
	}
	for _, s := range r.sets {
		key := linkKey{name: s.Name, uid: uids[0]}
		if uids = uids[1:]; s.Name == setexpr.Members {
			key.owner, uids = uids[0], uids[1:]
		}
		if from := sourceOf(s.Name); from.read == nil {
			number, _ := a.cfg.Graph.Source(from.source)
			*s.Leaf = *graph.Of(number, from.direction, key.uid)
			continue
		}
		given, err := l.set(key)
		if err != nil {
			return nil, err
		}
		*s.Leaf = *graph.Given(given)
	}
	return l.oldest, nil
}

// authority returns the DID of an AT URI.
func authority(uri string) string {
	did, _, _ := strings.Cut(strings.TrimPrefix(uri, "at://"), "/")
	return did
}
