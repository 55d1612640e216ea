package public

import "time"

// leftOutEvery is the least time between two info messages about events that were left out.
const leftOutEvery = time.Minute

// leftOutNotice decides when a subscriber gets an info message with the number of events left out.
type leftOutNotice struct {
	said int64     // the count at the last message, or when the subscriber became live
	next time.Time // no message before; zero: it has just become live
}

// due returns how many events the message that is due has; 0: none is due. total is the count now.
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
