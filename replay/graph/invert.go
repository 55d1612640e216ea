package graph

import (
	"sync"
	"unsafe"
)

const (
	groupBits   = 8       // edges are counted by groups of 256 subjects
	bucketEdges = 1 << 16 // a bucket has fewer, or one group
)

// pass is consecutive groups whose edges are sorted at once.
type pass struct {
	group  int      // index of the first group
	counts []uint32 // edges of each group
}

// passesOf divides groups into passes of at most so many edges, or of one group. most is how many
// edges a pass has at the most.
func passesOf(counts []uint32, atOnce int) (passes []pass, most int) {
	for group := 0; group < len(counts); {
		p, edges := pass{group: group}, 0
		for ; group < len(counts) && (group == p.group || edges+int(counts[group]) <= atOnce); group++ {
			edges += int(counts[group])
		}
		p.counts = counts[p.group:group]
		passes, most = append(passes, p), max(most, edges)
	}
	return passes, most
}

// inversion sorts the edges of a pass by subject. Its memory is outside the Go heap.
type inversion struct {
	first    uint32   // subject
	bucketOf []uint32 // by group
	buckets  []bucket
	fronts   []uint32 // by bucket, where its next edge of a low actor goes
	backs    []uint32 // and behind its next one of a high actor
	edges    []uint64 // subject and actor, by bucket
	drops    []func()

	// Of the bucket that was sorted last:
	subject uint32   // the first
	ends    []uint32 // by subject, where its list ends in lists
	lists   []uint32 // actors
	space   []uint32
}

// bucket is consecutive groups.
type bucket struct {
	group, groups int
	begin, end    uint32 // in edges
}

// newInversion makes one for passes of at most so many edges.
func newInversion(most int) (*inversion, error) {
	edges, drop, err := mapSlice[uint64](most)
	if err != nil {
		return nil, err
	}
	return &inversion{edges: edges, drops: []func(){drop}}, nil
}

// begin divides a pass's groups into buckets, and has room to sort the largest.
func (v *inversion) begin(p pass) error {
	v.first, v.bucketOf, v.buckets = uint32(p.group)<<groupBits, v.bucketOf[:0], v.buckets[:0]
	all, most := uint32(0), uint32(0)
	for n, count := range p.counts {
		last := len(v.buckets) - 1
		if last < 0 || all-v.buckets[last].begin+count >= bucketEdges {
			v.buckets = append(v.buckets, bucket{group: n, begin: all})
			last++
		}
		b := &v.buckets[last]
		b.groups++
		v.bucketOf = append(v.bucketOf, uint32(last))
		all += count
		b.end = all
		most = max(most, b.end-b.begin)
	}
	v.fronts, v.backs = v.fronts[:0], v.backs[:0]
	for _, b := range v.buckets {
		v.fronts, v.backs = append(v.fronts, b.begin), append(v.backs, b.end)
	}
	if int(most) <= len(v.space) {
		return nil
	}
	space, drop, err := mapSlice[uint32](int(most))
	if err != nil {
		return err
	}
	v.space, v.drops = space, append(v.drops, drop)
	return nil
}

func (v *inversion) drop() {
	for _, drop := range v.drops {
		drop()
	}
}

// collector reads the Out sets once, a part for each pass. Its memory is outside the Go heap.
type collector struct {
	from    *index
	cursors []cursor // by actor
	drop    func()
}

func newCollector(from *index) (*collector, error) {
	cursors, drop, err := mapSlice[cursor](len(from.refs))
	if err != nil {
		return nil, err
	}
	return &collector{from: from, cursors: cursors, drop: drop}, nil
}

// collect puts the edges to the subjects of v's pass into its buckets, in the order of their
// actors. The pass follows the last one. Two goroutines fill each bucket: one from its front, from
// the first actor on, the other from its back, from the last one down.
func (c *collector) collect(v *inversion) {
	half := uint32(len(c.cursors) / 2)
	var high sync.WaitGroup
	high.Go(func() {
		var list []uint32
		for actor := uint32(len(c.cursors)); actor > half; {
			actor--
			list = c.next(list[:0], actor, v)
			for _, subject := range list {
				back := &v.backs[v.bucketOf[(subject-v.first)>>groupBits]]
				*back--
				v.edges[*back] = uint64(subject)<<32 | uint64(actor)
			}
		}
	})
	var list []uint32
	for actor := range half {
		list = c.next(list[:0], actor, v)
		for _, subject := range list {
			front := &v.fronts[v.bucketOf[(subject-v.first)>>groupBits]]
			v.edges[*front] = uint64(subject)<<32 | uint64(actor)
			*front++
		}
	}
	high.Wait()
}

// next appends an actor's subjects of v's pass to list.
func (c *collector) next(list []uint32, actor uint32, v *inversion) []uint32 {
	end := v.first + uint32(len(v.bucketOf))<<groupBits
	s, at := c.from.set(actor), &c.cursors[actor]
	if s.bitmap != nil {
		it := s.bitmap.Iterator()
		for it.AdvanceIfNeeded(v.first); it.HasNext() && it.PeekNext() < end; {
			list = append(list, it.Next())
		}
		return list
	}
	return s.appendBelow(list, at, end)
}

// sortBucket sorts a bucket's edges by subject, into v.lists and v.ends.
func (v *inversion) sortBucket(n int) {
	b := &v.buckets[n]
	edges := v.edges[b.begin:b.end]
	v.subject = v.first + uint32(b.group)<<groupBits
	v.ends = append(v.ends[:0], make([]uint32, b.groups<<groupBits)...)
	v.lists = v.space[:len(edges)]
	for _, e := range edges {
		v.ends[uint32(e>>32)-v.subject]++
	}
	begin := uint32(0)
	for i, count := range v.ends {
		v.ends[i] = begin
		begin += count
	}
	for _, e := range edges {
		end := &v.ends[uint32(e>>32)-v.subject]
		v.lists[*end] = uint32(e)
		*end++
	}
}

// mapSlice maps n values outside the Go heap; drop gives them back. They have no pointers.
func mapSlice[T any](n int) (values []T, drop func(), err error) {
	if n == 0 {
		return nil, func() {}, nil
	}
	b, err := mapBytes(n * int(unsafe.Sizeof(*new(T))))
	if err != nil {
		return nil, nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), func() { unmapBytes(b) }, nil
}
