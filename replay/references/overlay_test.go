package references

import (
	"context"
	"testing"
)

// TestRoom: a batch that is larger than the overlay does not wait when it is alone. It gives all of
// its room back, that of what its records had too.
func TestRoom(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Config{OverlayBytes: 1}
	cfg.hooks.waiting = cancel
	s := openTest(t, cfg)
	for i, c := range []Change{like(1, 10, 1, 100), unlike(1, 10, 2)} {
		seq := int64(i + 1)
		c.Seq = seq
		b := &Batch{Position: Position{Epoch: 1, Seq: seq}, Changes: []Change{c}}
		if err := s.Hydrate(ctx, b); err != nil {
			t.Fatalf("seq %d, alone: %v", seq, err)
		}
		if s.overlay.bytes == 0 {
			t.Errorf("seq %d takes no room", seq)
		}
		apply(t, s, b)
		if s.overlay.bytes != 0 {
			t.Errorf("after seq %d, %d bytes of the overlay are taken", seq, s.overlay.bytes)
		}
	}
}

// TestAccountCache: an account has one entry, in whichever half it is.
func TestAccountCache(t *testing.T) {
	c := newAccountCache(0)
	first, _ := c.use(1, 1, 1)
	for account := uint64(2); len(c.old) == 0; account++ {
		c.use(account, 1, 1)
	}
	for range 2 {
		if e, known := c.use(1, 2, 1); e != first || !known {
			t.Errorf("the cache has another entry, %t", known)
		}
	}
}

// TestSync: a #sync to a commit that was seen changes nothing; since the first other one the
// account is inexact.
func TestSync(t *testing.T) {
	s := openTest(t, Config{})
	sync := func(rev uint64, us int64) Change {
		return Change{Operation: Sync, Account: 1, Rev: rev, TimeUS: us}
	}
	at := func() int64 {
		a, _, err := s.Account(1)
		if err != nil {
			t.Fatal(err)
		}
		return a.InexactUS
	}
	changes := do(t, s, 1, like(1, 10, 5, 100), sync(5, 7))
	if us := at(); us != 0 || !changes[1].Repeated {
		t.Errorf("after the #sync of a commit that was seen: inexact since %d, repeated %t", us, changes[1].Repeated)
	}
	do(t, s, 10, sync(6, 8), sync(7, 9))
	if us := at(); us != 8 {
		t.Errorf("inexact since %d", us)
	}
}

// TestNewRecords: no row is read of a record that is new to a batch. It is read if a batch after
// Since has left the overlay, as that may have the record. One that is applied stays while there is
// room.
func TestNewRecords(t *testing.T) {
	for _, c := range []struct {
		name                     string
		hydrated, applied, reads int // batches since Since, and rows that are read
		most                     int64
	}{
		{"none since", 0, 0, 0, 0}, {"one in flight", 1, 0, 0, 0}, {"two in flight", 2, 0, 0, 0},
		{"one applied", 1, 1, 0, 10_000}, {"one of two applied", 2, 1, 0, 10_000},
		{"one has left", 1, 1, 2, 0}, {"one of two has left", 2, 1, 2, 0}, {"one of two applied has left", 2, 2, 2, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openTest(t, Config{Links: LinksOn})
			do(t, s, 1, like(1, 9, 1, 100))
			since := s.Hydrated()
			var batches []*Batch
			for i := range c.hydrated {
				batches = append(batches, hydrate(t, s, int64(10+10*i), like(1, 20+uint64(i), uint64(2+i), 101)))
			}
			for _, b := range batches[:c.applied] {
				if err := s.Apply(b); err != nil {
					t.Fatal(err)
				}
			}
			leaveOverlay(s, c.most)
			before := lookUps(t, s)
			gone, made := unlike(1, 20, 8), like(1, 30, 9, 102)
			gone.Seq, made.Seq, gone.New, made.New = 90, 91, true, true
			b := &Batch{Position: Position{Epoch: 1, Seq: 91}, Changes: []Change{gone, made}, Since: since}
			if err := s.Hydrate(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if reads := int(lookUps(t, s) - before); reads != c.reads {
				t.Errorf("%d rows were read, not %d", reads, c.reads)
			}
			if had := b.Changes[0].Had; len(had) != min(c.hydrated, 1) {
				t.Errorf("the delete had %v", had)
			}
			apply(t, s, append(batches[c.applied:], b)...)
		})
	}
}
