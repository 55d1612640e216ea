package graph

import (
	"slices"
	"unsafe"
)

const (
	groupBits   = 8       // edges are counted by groups of 256 subjects
	bucketEdges = 1 << 16 // a bucket has fewer, or one group
)

// inversion sorts the edges to some groups of subjects. Its memory is outside the Go heap.
type inversion struct {
	first    uint32   // subject
	bucketOf []uint32 // by group
	buckets  []bucket
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

// newInversion makes one of groups from a group on, with as many edges each as counts says.
func newInversion(group int, counts []uint32) (*inversion, error) {
	v := &inversion{first: uint32(group) << groupBits}
	all, most := uint32(0), uint32(0)
	for n, count := range counts {
		last := len(v.buckets) - 1
		if last < 0 || all-v.buckets[last].begin+count >= bucketEdges {
			v.buckets = append(v.buckets, bucket{group: n, begin: all, end: all})
			last++
		}
		v.buckets[last].groups++
		v.bucketOf = append(v.bucketOf, uint32(last))
		all += count
		most = max(most, all-v.buckets[last].begin)
	}
	edges, drop, err := mapWords(2 * int(all))
	if err != nil {
		return nil, err
	}
	v.drops = append(v.drops, drop)
	v.edges = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(edges))), all)
	if v.space, drop, err = mapWords(int(most)); err != nil {
		v.drop()
		return nil, err
	}
	v.drops = append(v.drops, drop)
	return v, nil
}

func (v *inversion) drop() {
	for _, drop := range v.drops {
		drop()
	}
}

// collect puts the edges of all sets that have such a subject into their buckets, in the order of
// their actors.
func (v *inversion) collect(x *index) {
	var list []uint32
	for actor := range x.refs {
		list = x.set(uint32(actor)).appendTo(list[:0])
		from, _ := slices.BinarySearch(list, v.first)
		for _, subject := range list[from:] {
			group := (subject - v.first) >> groupBits
			if int(group) >= len(v.bucketOf) {
				break
			}
			b := &v.buckets[v.bucketOf[group]]
			v.edges[b.end] = uint64(subject)<<32 | uint64(actor)
			b.end++
		}
	}
}

// sortBucket makes the lists of a bucket.
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
