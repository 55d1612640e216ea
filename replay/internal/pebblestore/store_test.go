package pebblestore

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestBlockCache: tables that were read are in memory, beside memtables of the full size.
func TestBlockCache(t *testing.T) {
	s, err := Open(Config{Dir: "log", FS: vfs.NewMem(), Bytes: 16 << 20,
		SpanPolicy: func([]byte) (pebble.SpanPolicy, []byte, error) { return pebble.SpanPolicy{}, nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	rng := rand.NewChaCha8([32]byte{1})
	value := make([]byte, 8<<10)
	const values = 4096 // 32 MiB
	for i := range uint64(values) {
		_, _ = rng.Read(value)
		if err := s.Pebble().Set(binary.BigEndian.AppendUint64(nil, i), value, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(values) {
		_, closer, err := s.Pebble().Get(binary.BigEndian.AppendUint64(nil, i))
		if err != nil {
			t.Fatal(err)
		}
		if err := closer.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if m := s.Pebble().Metrics(); m.BlockCache.Size < s.CacheBytes/2 || m.BlockCache.Size > 2*s.CacheBytes || m.MemTable.Size < uint64(s.MemTableBytes) {
		t.Errorf("%d bytes of %d are cached, beside %d of memtables of %d", m.BlockCache.Size, s.CacheBytes, m.MemTable.Size, s.MemTableBytes)
	}
}
