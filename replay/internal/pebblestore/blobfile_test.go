package pebblestore

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// slowFile is a file of which all that was not read ahead takes a disk's time.
type slowFile struct {
	vfs.File
	size   int64
	ahead  [][2]int64 // what was read ahead
	waited int
}

func (f *slowFile) ReadAt(p []byte, off int64) (n int, err error) {
	n = int(min(int64(len(p)), f.size-off))
	if n < len(p) {
		err = io.EOF
	}
	for at := off; at < off+int64(n); at++ {
		if i := slices.IndexFunc(f.ahead, func(a [2]int64) bool { return a[0] <= at && at < a[1] }); i >= 0 {
			at = f.ahead[i][1] - 1
			continue
		}
		f.waited++
		time.Sleep(2 * slowRead)
		break
	}
	return n, err
}

func (f *slowFile) Prefetch(off, n int64) error {
	f.ahead = append(f.ahead, [2]int64{off, off + n})
	return errors.New("nothing is reported")
}

// TestBlobFile: what is read one after the other from a disk is read ahead, without gap and not
// twice. What is read at random, or comes from memory, is not.
func TestBlobFile(t *testing.T) {
	const size, n = 4 << 20, 30 << 10
	rng := rand.New(rand.NewPCG(9, 9))
	along := func(from, step int64) (reads []int64) {
		for at := from; at < size; at += step {
			reads = append(reads, at)
		}
		return reads
	}
	mixed := func(runs ...[]int64) (reads []int64) {
		for i := range runs[0] {
			for _, r := range runs {
				if i < len(r) {
					reads = append(reads, r[i])
				}
			}
		}
		return reads
	}
	var random []int64
	for range 100 {
		random = append(random, rng.Int64N(size/4)*4)
	}
	backwards := along(0, n)
	slices.Reverse(backwards)
	for name, tc := range map[string]struct {
		reads  []int64
		cached bool
		most   int   // reads that wait
		least  int64 // bytes read ahead
		waste  int64 // bytes that may be read ahead beside
	}{
		"one behind the other": {reads: along(0, n), most: 4, least: size - 4*n, waste: 2 * runAhead},
		"with gaps":            {reads: along(0, n+runSkip), most: 4, least: size - 4*(n+runSkip), waste: 2 * runAhead},
		"larger gaps":          {reads: along(0, n+runSkip+1), most: size/(n+runSkip+1) + 1},
		"two":                  {reads: []int64{0, n, 2 << 20, 2<<20 + n, 1 << 20, 1<<20 + n}, most: 6},
		"in memory":            {reads: along(0, n), cached: true},
		"backwards":            {reads: backwards, most: len(backwards)},
		"at random":            {reads: random[:60], most: 60, waste: 4 * runAhead},
		"three at once": {reads: mixed(along(0, n)[:40], along(4*size/10, n)[:20], along(7*size/10, n)[:20]), most: 12,
			least: 60 * n, waste: 6 * runAhead},
		"five at once": {reads: mixed(along(0, n)[:20], along(1*size/5, n)[:20], along(2*size/5, n)[:20], along(3*size/5, n)[:20], along(4*size/5, n)[:20]), most: 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := &slowFile{size: size}
				if tc.cached {
					file.ahead = [][2]int64{{0, size}}
				}
				f := &blobFile{File: file}
				b := make([]byte, n)
				for _, off := range tc.reads {
					if got, err := f.ReadAt(b, off); int64(got) != min(n, size-off) || (err == io.EOF) != (off+n > size) {
						t.Fatalf("read at %d: %d bytes, %v", off, got, err)
					}
				}
				ahead := file.ahead
				if tc.cached {
					ahead = ahead[1:]
				}
				slices.SortFunc(ahead, func(a, b [2]int64) int { return int(a[0] - b[0]) })
				var bytes int64
				for i, a := range ahead {
					if bytes += a[1] - a[0]; i > 0 && a[0] < ahead[i-1][1] {
						t.Errorf("twice: %v and %v", ahead[i-1], a)
					}
				}
				if file.waited > tc.most || bytes < tc.least || bytes > tc.least+tc.waste {
					t.Errorf("%d of %d reads waited, %d bytes were read ahead: %v", file.waited, len(tc.reads), bytes, ahead)
				}
			})
		})
	}
}

// TestBlobFilesOnly: of the store's files only those with values are read ahead.
func TestBlobFilesOnly(t *testing.T) {
	mem := vfs.NewMem()
	fs := &blobFS{mem}
	for name, want := range map[string]bool{"000001.blob": true, "000002.sst": false, "000003.log": false} {
		f, err := mem.Create(name, vfs.WriteCategoryUnspecified)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		f, err = fs.Open(name, vfs.RandomReadsOption)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := f.(*blobFile); got != want {
			t.Errorf("%s is looked at: %v", name, got)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := fs.Open("000004.blob"); err == nil {
		t.Error("a file that is not there is opened")
	}
}
