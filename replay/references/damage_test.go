package references

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
)

// TestDamagedValues: each reader of a value that is not as it was written says so, and names the
// store.
func TestDamagedValues(t *testing.T) {
	withView := func(s *Store, read func(v *View) error) error {
		v, err := s.View()
		if err != nil {
			return err
		}
		return errors.Join(read(v), v.Close())
	}
	reads := map[string]func(s *Store) error{
		"Row": func(s *Store) error { _, _, err := s.Row(1, 10); return err },
		"Rows": func(s *Store) error {
			_, err := s.Rows(context.Background(), func(*Row) error { return nil })
			return err
		},
		"Hydrate": func(s *Store) error {
			return s.Hydrate(context.Background(), &Batch{Position: Position{Epoch: 1, Seq: 9}, Changes: []Change{{Operation: Delete, Account: 1, Record: 10, Rev: 5, Seq: 8}}})
		},
		"View.Row": func(s *Store) error {
			return withView(s, func(v *View) error { _, err := v.Row(new(Row), 1, 10); return err })
		},
		"DecodeRow": func(s *Store) error {
			return withView(s, func(v *View) error {
				key := s.codec.recordKey(recordID{1, 10})
				value, _, err := v.Get(key)
				var row Row
				return errors.Join(err, v.DecodeRow(&row, key, value))
			})
		},
		"Account": func(s *Store) error {
			return withView(s, func(v *View) error { _, _, err := v.Account(1); return err })
		},
		"sweep": func(s *Store) error {
			_, err := s.sweep()
			return err
		},
		"buildLinks": func(s *Store) error {
			_, err := s.buildLinks()
			return err
		},
		"Run, of links":   func(s *Store) error { return runUntilIdle(s) },
		"Run, of deletes": func(s *Store) error { return runUntilIdle(s) },
	}
	for _, tc := range []struct {
		name  string
		key   func(s *Store) []byte
		value []byte
		reads []string
	}{
		{"row", func(s *Store) []byte { return s.codec.recordKey(recordID{1, 10}) }, []byte{}, []string{"Row", "Rows", "Hydrate", "View.Row", "DecodeRow", "buildLinks", "Run, of links"}},
		{"cut row", func(s *Store) []byte { return s.codec.recordKey(recordID{1, 10}) }, []byte{1, 1}, []string{"Row", "Rows", "Hydrate", "View.Row", "DecodeRow", "buildLinks"}},
		{"state", func(s *Store) []byte { return s.codec.accountKey(rangeAccount, 1) }, []byte{1}, []string{"Row", "Rows", "Hydrate", "Account"}},
		{"deleted row", func(s *Store) []byte { return s.codec.recordKey(recordID{2, 20}) }, []byte{}, []string{"Rows", "sweep", "Run, of deletes"}},
	} {
		for _, read := range tc.reads {
			t.Run(tc.name+"/"+read, func(t *testing.T) {
				cfg := Config{}
				s := openTest(t, cfg)
				do(t, s, 1, like(1, 10, 1, 100), like(2, 20, 2, 100), Change{Operation: DeleteAccount, Account: 2, Rev: 3, TimeUS: 4})
				Harm(t, s, func(b *pebble.Batch) error { return b.Set(tc.key(s), tc.value, nil) })
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				cfg = s.cfg
				if read == "buildLinks" || read == "Run, of links" {
					cfg.Links = LinksOn
				}
				s = openTest(t, cfg)
				err := reads[read](s)
				var damage *pebbleguard.CorruptionError
				if !errors.As(err, &damage) || damage.Store != "reference store" || !strings.Contains(err.Error(), "value of key") {
					t.Errorf("error %v", err)
				}
			})
		}
	}
}

// TestDamagedState: there is no view of a store whose position is not as it was written.
func TestDamagedState(t *testing.T) {
	s := openTest(t, Config{})
	do(t, s, 1, like(1, 10, 1, 100))
	Harm(t, s, func(b *pebble.Batch) error { return b.Set(metaKey(metaState), []byte{0x80}, nil) })
	var damage *pebbleguard.CorruptionError
	if v, err := s.View(); !errors.As(err, &damage) {
		t.Errorf("view %+v, %v", v, err)
	}
}

// runUntilIdle calls Run until it has nothing more to do.
func runUntilIdle(s *Store) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.cfg.hooks.idle = cancel
	return s.Run(ctx)
}
