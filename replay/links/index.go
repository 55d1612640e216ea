package links

import (
	"context"
	"errors"
	"fmt"

	"millrace/replay/references"
)

// Index answers Queries from a reference store that was opened with references.LinksOn.
type Index struct{ store *references.Store }

// New returns the index of a store.
func New(store *references.Store) *Index { return &Index{store} }

// View implements Queries.
func (x *Index) View() (View, error) {
	v, err := x.store.View()
	if err != nil {
		return nil, err
	}
	if !v.LinksComplete {
		return nil, errors.Join(ErrBuilding, v.Close())
	}
	return &view{View: v, recent: x.store.Recent}, nil
}

// Progress implements Queries.
func (x *Index) Progress() Progress {
	on, built, err := x.store.LinksProgress()
	if err != nil || !on {
		return Progress{}
	}
	return Progress{Complete: built == 1, Done: built}
}

// Wait implements Queries.
func (x *Index) Wait(ctx context.Context, at references.Position) error {
	if err := x.store.Wait(ctx, at); err != nil {
		return fmt.Errorf("wait for links at %d-%d: %w", at.Epoch, at.Seq, err)
	}
	return nil
}

// Since implements Queries.
func (x *Index) Since() references.Position { return x.store.Generation().From }

// InexactSince implements Queries.
func (x *Index) InexactSince() int64 { return x.store.InexactSince() }
