package format

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/minio/minlz"
)

// The plain part is compressed here and not by Pebble, in pages of whole frames that can be read
// one by one. A reader unpacks pages into memory that it uses again and that fits a core's own
// cache. One of few matches unpacks only the pages that have one. Checksums and the store's cache
// are of the compressed form.
//
// Within a page, the frames of a collection that has much of the block are compressed as a
// substream of their own. Those of all others are another. A reader of posts among likes unpacks
// the posts. Each substream is a value of its own, so that a reader of one does not read the
// others.
const (
	pagesRaw   byte = iota // the frames as they are
	pagesMinLZ             // pages of MinLZ blocks
)

const (
	// PageBytes is how large a page is at most, but for one of a single larger frame. A page and
	// what it is unpacked from fit into half of a core's own cache.
	PageBytes = 128 << 10
	// maxPageBytes is how large a page is in any case: a larger frame is in several.
	maxPageBytes = 1 << 20
	// minPackedBytes: a smaller part is stored as it is.
	minPackedBytes = 4 << 10
	// minSubstreamsBytes: a smaller part has one substream.
	minSubstreamsBytes = PageBytes

	pagesHeadBytes = 8
	// substreamShare: a collection has a substream of its own if it has such a share of the bytes.
	substreamShare = 16
)

// pagePacker packs a plain part into the values that it is stored as: one, or one for each
// substream.
type pagePacker struct {
	frames     int      // their bytes
	pages      []uint32 // where they end in the frames
	substreams int      // 0: the frames as they are

	bytes []int   // by collection
	own   []uint8 // the substream of each collection
	of    []uint8 // the substream of each event, if there are several

	page [MaxSubstreams][]byte   // of the page that is packed: the frames by substream
	out  [MaxSubstreams][]byte   // by substream: what is packed
	ends [MaxSubstreams][]uint32 // and where the pages end in it
}

var pagePackers = sync.Pool{New: func() any { return new(pagePacker) }}

// maxKeptSubstream bounds each buffer that goes back to pagePackers.
const maxKeptSubstream = 2 * PageBytes

// pack packs frames that end at ends, each of its collection; collections nil: they are all of one.
// It returns the number of values. From substreamsBytes on there may be several.
func (k *pagePacker) pack(frames []byte, ends []uint32, collections []uint16, substreamsBytes int) (values int) {
	k.frames = len(frames)
	for s := range k.out {
		k.out[s], k.ends[s] = k.out[s][:0], k.ends[s][:0]
	}
	if len(frames) < min(minPackedBytes, substreamsBytes) {
		k.out[0] = append(k.out[0], frames...)
		k.substreams, k.pages, k.of = 0, nil, k.of[:0]
		return 1
	}
	k.substreams = 1
	if k.of = k.of[:0]; len(frames) >= substreamsBytes && collections != nil {
		k.substreams = k.divide(len(frames), ends, collections)
	}
	k.pages = cutPages(len(frames), ends)
	from := uint32(0)
	for _, to := range k.pages {
		if k.substreams == 1 {
			k.put(0, frames[from:to])
		} else {
			k.split(frames, ends, from, to)
			for s := range k.substreams {
				k.put(s, k.page[s])
			}
		}
		from = to
	}
	return k.substreams
}

// put packs what the next page has of a substream.
func (k *pagePacker) put(substream int, b []byte) {
	k.out[substream] = appendMinLZ(k.out[substream], b)
	k.ends[substream] = append(k.ends[substream], uint32(len(k.out[substream])))
}

// appendValue appends the value of a substream, without trailer.
func (k *pagePacker) appendValue(dst []byte, substream int) []byte {
	if substream > 0 {
		return append(append(dst, byte(substream)), k.out[substream]...)
	}
	coding := pagesMinLZ
	if k.substreams == 0 {
		coding = pagesRaw
	}
	dst = append(dst, coding, byte(k.substreams))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(k.pages)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(k.frames))
	for i, end := range k.pages {
		dst = binary.LittleEndian.AppendUint32(dst, end)
		for s := range k.substreams {
			dst = binary.LittleEndian.AppendUint32(dst, k.ends[s][i])
		}
	}
	dst = append(dst, k.of...)
	return append(dst, k.out[0]...)
}

// free gives k back to pagePackers.
func (k *pagePacker) free() {
	for s := range k.page {
		if cap(k.page[s]) > maxKeptSubstream {
			k.page[s] = nil
		}
		if cap(k.out[s]) > maxKeptSubstream {
			k.out[s] = nil
		}
	}
	pagePackers.Put(k)
}

// AppendPages appends frames that end at ends as one value, without trailer.
func AppendPages(dst, frames []byte, ends []uint32) []byte {
	k := pagePackers.Get().(*pagePacker)
	defer k.free()
	k.pack(frames, ends, nil, minSubstreamsBytes)
	return k.appendValue(dst, 0)
}

// pageHeadBytes is the length of what the value says of each page.
func pageHeadBytes(substreams int) int { return 4 + 4*substreams }

// appendMinLZ appends b, compressed. Nothing becomes nothing.
func appendMinLZ(dst, b []byte) []byte {
	if len(b) == 0 {
		return dst
	}
	dst = slices.Grow(dst, minlz.MaxEncodedLen(len(b)))
	packed, err := minlz.Encode(dst[len(dst):cap(dst)], b, minlz.LevelFastest)
	if err != nil {
		panic(fmt.Sprintf("compress %d bytes: %v", len(b), err)) // only if they are too many
	}
	return append(dst, packed...) // onto itself
}

// divide chooses the substreams of n bytes of frames, and returns their number. If they are more
// than one, k.of has that of each event, else it is empty.
func (k *pagePacker) divide(n int, ends []uint32, collections []uint16) (substreams int) {
	k.bytes = k.bytes[:0]
	from := uint32(0)
	for i, c := range collections {
		for len(k.bytes) <= int(c) {
			k.bytes = append(k.bytes, 0)
		}
		k.bytes[c] += int(ends[i] - from)
		from = ends[i]
	}
	substreams = 1
	k.own = k.own[:0]
	rest := n
	for _, b := range k.bytes {
		own := 0
		if b >= n/substreamShare && substreams < MaxSubstreams {
			own = substreams
			substreams++
			rest -= b
		}
		k.own = append(k.own, uint8(own))
	}
	if substreams == 1 || substreams == 2 && rest == 0 {
		return 1
	}
	for _, c := range collections {
		k.of = append(k.of, k.own[c])
	}
	return substreams
}

// split fills k.page with the substreams of the page of the frames' bytes from from up to to.
func (k *pagePacker) split(frames []byte, ends []uint32, from, to uint32) {
	for i := range k.page {
		k.page[i] = k.page[i][:0]
	}
	for e := endingAfter(ends, from); from < to; e++ {
		end := min(ends[e], to)
		s := k.of[e]
		k.page[s] = append(k.page[s], frames[from:end]...)
		from = end
	}
}

// endingAfter returns the first event that ends after offset.
func endingAfter(ends []uint32, offset uint32) int {
	return sort.Search(len(ends), func(i int) bool { return ends[i] > offset })
}

// cutPages returns where the pages of n bytes of frames end: about equally large ones.
func cutPages(n int, ends []uint32) (pages []uint32) {
	count := (n + PageBytes - 1) / PageBytes
	enough := uint32((n + count - 1) / count)
	var from, last uint32 // where the page begins, and where its last frame ends
	cut := func() {
		for ; last-from > maxPageBytes; from += maxPageBytes {
			pages = append(pages, from+maxPageBytes)
		}
		pages = append(pages, last)
		from = last
	}
	for _, end := range ends {
		if last > from && end-from > PageBytes {
			cut()
		}
		if last = end; last-from >= enough {
			cut()
		}
	}
	if last = uint32(n); last > from {
		cut()
	}
	return pages
}

// maxPagesLen is how many bytes the values of n bytes of so many events take at most, with their
// trailers.
func maxPagesLen(n, events int) int {
	// Two neighbours are together more than PageBytes.
	pages := 2*(n/PageBytes) + n/maxPageBytes + 2
	return pagesHeadBytes + MaxSubstreams*(1+TrailerBytes) + n + events +
		pages*(pageHeadBytes(MaxSubstreams)+MaxSubstreams*(minlz.MaxEncodedLen(0)+16))
}
