package graph

import "slices"

// members returns the members of any set.
func members(s set) []uint32 {
	return s.appendTo(make([]uint32, 0, s.members))
}

// members32 returns the members of a leaf without a bitmap.
func (l leaf) members32() []uint32 {
	if l.list != nil {
		return l.list
	}
	return members(l.set)
}

// intersect returns the members of a list that a leaf has.
func intersect(list []uint32, l leaf) []uint32 {
	var both []uint32
	if l.bitmap != nil {
		for _, m := range list {
			if l.contains(m) {
				both = append(both, m)
			}
		}
		return both
	}
	short, long := list, l.members32()
	if len(short) > len(long) {
		short, long = long, short
	}
	for _, m := range short {
		long = long[gallop(long, m):]
		if len(long) > 0 && long[0] == m {
			both = append(both, m)
		}
	}
	return both
}

// gallop returns where the first member is that is not below m.
func gallop(list []uint32, m uint32) int {
	step := 1
	for step < len(list) && list[step] < m {
		step *= 2
	}
	low := step / 2
	window := list[low:min(step+1, len(list))]
	at, _ := slices.BinarySearch(window, m)
	return low + at
}

// without returns the members of a that are not in b.
func without(a, b []uint32) []uint32 {
	if len(b) == 0 {
		return a
	}
	var rest []uint32
	for _, m := range a {
		b = b[gallop(b, m):]
		if len(b) == 0 || b[0] != m {
			rest = append(rest, m)
		}
	}
	return rest
}

func union(a, b []uint32) []uint32 {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	all := make([]uint32, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			all, a = append(all, a[0]), a[1:]
		case a[0] > b[0]:
			all, b = append(all, b[0]), b[1:]
		default:
			all, a, b = append(all, a[0]), a[1:], b[1:]
		}
	}
	return append(append(all, a...), b...)
}
