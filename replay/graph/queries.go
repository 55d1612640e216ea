package graph

import (
	"context"
	"errors"
	"fmt"

	"millrace/replay/references"
)

// ErrBuilding means: the graph is not complete yet. Progress says how far it is.
var ErrBuilding = errors.New("the graph is being built")

// The sources that a server keeps.
const (
	SourceFollow = "app.bsky.graph.follow:subject"
	SourceBlock  = "app.bsky.graph.block:subject"
)

// DefaultSources are all of them.
func DefaultSources() []string { return []string{SourceFollow, SourceBlock} }

// Queries is what a server asks; package feed implements it. It is safe for concurrent use.
type Queries interface {
	// Graph returns the graph; it stays the feed's, which closes it. Each of its answers says up to
	// which position it counts, and whether it misses edges. Error: ErrBuilding.
	Graph() (*Graph, error)
	// Source returns the number that Set.Source and Has take. ok is false of a source that is not
	// kept.
	Source(name string) (number int, ok bool)
	// Progress says how far the graph is built.
	Progress() Progress
	// Wait returns when answers asked for from then on count up to a position, or further. Errors:
	// the cause of ctx's end, and ErrClosed if the graph no longer follows the log.
	Wait(ctx context.Context, at references.Position) error
	// Since says where in the log the records begin: edges of records that are older are known only
	// if they were imported.
	Since() references.Position
	// InexactSince returns the stamp, in Unix microseconds, of the first gap since then; deletes
	// may be missing from there. 0: there was none.
	InexactSince() int64
}

// Progress says how far the graph is built from the record table.
type Progress struct {
	Complete bool
	Done     float64 // 0 to 1, of the table; an estimate
	Edges    int64   // that were found
}

// String returns it for people.
func (p Progress) String() string {
	if p.Complete {
		return "complete"
	}
	return fmt.Sprintf("%.1f %% built, %d edges", 100*p.Done, p.Edges)
}
