package refs

import (
	"context"
	"fmt"
	"io"

	"millrace/replay/graph"
)

// EdgeExport writes edges as EdgeReader reads them.
type EdgeExport struct {
	Names    Names
	Source   int // in graph.DefaultSources
	Static   bool
	Progress func() // after some thousand edges
	Edges    uint64 // written

	edges []graph.Edge // not written yet
}

// Run writes the edges of a snapshot, or of a file of static edges.
func (x *EdgeExport) Run(ctx context.Context, file string, w io.Writer) error {
	if _, err := fmt.Fprintln(w, "actor,subject"); err != nil {
		return err
	}
	err := graph.Each(file, func(e *graph.Edges) error {
		if e.Source != x.Source || e.Static != x.Static {
			return nil
		}
		for _, subject := range e.Subjects {
			if x.edges = append(x.edges, graph.Edge{Actor: e.Actor, Subject: subject}); len(x.edges) < exportLookup/2 {
				continue
			}
			if err := x.flush(ctx, w); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return x.flush(ctx, w)
}

func (x *EdgeExport) flush(ctx context.Context, w io.Writer) error {
	uids := make([]uint64, 0, exportLookup)
	for _, e := range x.edges {
		uids = append(uids, e.Actor, e.Subject)
	}
	names := make([]string, len(uids))
	if err := x.Names.LookupUIDs(ctx, uids, names); err != nil {
		return err
	}
	for i := 0; i < len(names); i += 2 {
		if names[i] == "" || names[i+1] == "" {
			return fmt.Errorf("an edge has UIDs %d and %d, which are not both in the UID store", uids[i], uids[i+1])
		}
		if _, err := fmt.Fprintf(w, "%s,%s\n", names[i], names[i+1]); err != nil {
			return err
		}
	}
	x.Edges += uint64(len(x.edges))
	x.edges = x.edges[:0]
	x.Progress()
	return nil
}
