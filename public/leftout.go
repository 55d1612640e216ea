package public

import "time"

// leftOutEvery is how often a live subscriber is told of events that were left out, at most.
const leftOutEvery = time.Minute

// leftOutNotice decides when a subscriber is told how many events were left out.
type leftOutNotice struct {
	said int64     // what the count was when it was said last, or when the subscriber became live
	next time.Time // not before; zero: it has just become live
}

// due returns how many to say now that the count is total; 0: nothing is to be said.
func (n *leftOutNotice) due(total int64, now time.Time) (events int64) {
	switch {
	case n.next.IsZero():
	case now.Before(n.next) || total == n.said:
		return 0
	default:
		events = total - n.said
	}
	n.said, n.next = total, now.Add(leftOutEvery)
	return events
}
