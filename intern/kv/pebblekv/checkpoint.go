package pebblekv

import (
	"fmt"

	"millrace/intern/kv"
)

// Checkpoint makes a copy of the store in dir, which must not exist; Open takes it. It has
// everything that was committed before the call, and perhaps some transactions that are committed
// during it, each whole. Transactions go on meanwhile. Tables are linked where dir is on the
// store's file system, so that it takes a moment, and copied else. Until it is done no file of the
// store is deleted. Errors: kv.ErrClosed and those of the disk, after which there is no dir.
func (s *Store) Checkpoint(dir string) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fmt.Errorf("checkpoint: %w", kv.ErrClosed)
	}
	s.inFlight.Add(1) // Close waits for it
	s.mu.Unlock()
	defer s.inFlight.Done()
	if err := s.db.Checkpoint(dir); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
