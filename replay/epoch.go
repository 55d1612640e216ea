package replay

import "millrace/translate"

// StreamOfEpoch names the stream of an epoch that the log followed, whichever relay it was of, or
// that would be the next of the relay it follows now.
func (l *Log) StreamOfEpoch(epoch uint32) translate.Stream {
	s := l.snap.Load()
	for _, st := range s.streams {
		if st.Epoch == epoch {
			return st.Tag
		}
	}
	return StreamOf(l.cfg.Relay, epoch)
}
