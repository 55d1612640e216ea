package public

import "millrace/replay"

// hasReferences says whether events have their references from somewhere on.
func (s *Server) hasReferences() bool {
	return s.cfg.UIDs != nil && s.events.rangeOf().References != nil
}

// checkReferences says what o asks for that a server without references does not have.
func (s *Server) checkReferences(o *options) error {
	if s.hasReferences() {
		return nil
	}
	for _, asked := range []struct {
		name string
		yes  bool
	}{
		{"references", o.references},
		{"wantedSubjects", len(o.wants.Subjects.members) > 0},
		{"wantedSubjectDids", len(o.wants.SubjectDIDs.members) > 0},
		{"wantedSources", len(o.wants.Sources.members) > 0},
	} {
		if asked.yes {
			return invalidOption("%s: needs a server with --references=on", asked.name)
		}
	}
	return nil
}

// referencesNotice is the info message that a subscriber gets, once, if it reads events that are
// older than the references that it wants.
type referencesNotice struct {
	checked bool // for the filter in force
	said    bool
}

// wantsReferences says whether the subscriber asked for references, or filters by them.
func (s *subscriber) wantsReferences() bool { return s.opts.references || s.filter.byReference }

// beforeReferences returns the point after which the log, which has some, has references, and
// whether r is before that.
func (s *Server) beforeReferences(r reader) (begin replay.Point, before bool) {
	begin = *s.events.rangeOf().References
	return begin, r.Before(begin.TimeUS)
}

// referencesBegin is called before the next chunk is read. It returns the point of the message
// references_begin, if one must be sent before the chunk.
func (s *subscriber) referencesBegin() (begin replay.Point, due bool) {
	if s.notice.checked {
		return begin, false
	}
	s.notice.checked = true
	if s.notice.said || !s.opts.extended && !s.opts.v2 || !s.wantsReferences() {
		return begin, false
	}
	begin, due = s.server.beforeReferences(s.reader)
	s.notice.said = due
	return begin, due
}
