package ahead

import "testing"

// TestLookupPolicy is the table of how many look-ups a reader does at once, and when one was slow.
func TestLookupPolicy(t *testing.T) {
	for _, tc := range []struct {
		depth      Depth
		slow, fast Depth
		alone      int
	}{{0, 2, 0, 1}, {1, 2, 1, 1}, {2, 4, 1, 2}, {5, 10, 4, 5}, {8, 16, 7, 8}, {12, MaxLookups, 11, 12}, {MaxLookups, MaxLookups, 15, MaxLookups}} {
		if slow, fast := tc.depth.After(true), tc.depth.After(false); slow != tc.slow || fast != tc.fast {
			t.Errorf("after a look-up at depth %d: %d if it was slow, want %d; else %d, want %d", tc.depth, slow, tc.slow, fast, tc.fast)
		}
		if alone, among := tc.depth.Among(1), tc.depth.Among(2); alone != tc.alone || among != 1 {
			t.Errorf("depth %d is %d alone, want %d, and %d among others, want 1", tc.depth, alone, tc.alone, among)
		}
	}
	for _, tc := range []struct {
		time Lookup
		want bool
	}{
		{Lookup{Took: slowLookup}, false}, {Lookup{Took: slowLookup + 1}, true},
		{Lookup{Took: slowLookup + 100*slowFingerprint, Fingerprints: 100}, false},
		{Lookup{Took: slowLookup + 100*slowFingerprint + 1, Fingerprints: 100}, true},
		{Lookup{Took: slowLookup + 5000*slowByte, Bytes: 5000}, false}, {Lookup{Took: slowLookup + 5000*slowByte + 1, Bytes: 5000}, true},
	} {
		if got := tc.time.Slow(); got != tc.want {
			t.Errorf("%+v is Slow: %v", tc.time, got)
		}
	}
	for _, tc := range []struct {
		depth int
		cache int64
		bytes int
		want  int
	}{{1, 1 << 30, 1000, KnownBlocks}, {10, 1 << 30, 1000, 10}, {10, CacheShare * 7000, 1000, 7}, {10, 1, 1000, KnownBlocks}} {
		if got := Window(tc.depth, tc.cache, tc.bytes); got != tc.want {
			t.Errorf("at depth %d, with a cache of %d bytes and blocks of %d, %d are read ahead, want %d", tc.depth, tc.cache, tc.bytes, got, tc.want)
		}
	}
}

// TestReadaheadPolicy is the table of when one more block is read ahead.
func TestReadaheadPolicy(t *testing.T) {
	for _, tc := range []struct {
		name string
		load Load
		most int // blocks at once; 0: none
	}{
		{"alone", Load{BlockBytes: 1000, CacheBytes: 1 << 20, Cores: 8, Scans: 1}, maxBlocks},
		{"one core", Load{BlockBytes: 1000, CacheBytes: 1 << 20, Cores: 1, Scans: 1}, blocksPerCore},
		{"among others", Load{BlockBytes: 1000, CacheBytes: 1 << 20, Cores: 8, Scans: 2}, maxBlocks / 4},
		{"the disk is slow", Load{BlockBytes: 1000, CacheBytes: 1 << 20, Cores: 1, Scans: 1, Slow: true}, MaxLookups},
		{"the disk is slow, among others", Load{BlockBytes: 1000, CacheBytes: 1 << 20, Cores: 1, Scans: 9, Slow: true}, MaxLookups / 2},
		{"as large as may be", Load{BlockBytes: 1000, CacheBytes: 1000 * CacheShare, Cores: 8, Scans: 1}, maxBlocks},
		{"too large", Load{BlockBytes: 1001, CacheBytes: 1000 * CacheShare, Cores: 8, Scans: 1}, 0},
		{"too large for a slow disk", Load{BlockBytes: 1001, CacheBytes: 1000 * CacheShare, Cores: 8, Scans: 1, Slow: true}, 0},
	} {
		got := 0
		for ; got <= MaxLookups; got++ {
			if tc.load.Running = got; !tc.load.Admits() {
				break
			}
		}
		if got != tc.most {
			t.Errorf("%s: %d blocks are read ahead at once, want %d", tc.name, got, tc.most)
		}
	}
}
