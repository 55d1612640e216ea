package linksapi

import (
	"strings"

	"millrace/public/internal/viewapi"
)

// maxFilter is how many DIDs, or subjects, a filter may name.
const maxFilter = 1000

// query is what a request asks for. Sources are those of references, "collection:path".
type query struct {
	subject string
	source  string
	other   string // source of the other subject, in the same record
	dids    []string
	others  []string // subjects
	cursor  cursor
	limit   int
	reverse bool
	at      viewapi.At

	anySubject bool // the request is about all subjects: only at is given
}

// params reads the parameters of a request.
type params struct{ *viewapi.Params }

// list returns the values of a parameter that may be repeated.
func (p *params) list(name string) []string { return p.List(name, maxFilter) }

// source returns the collection and the path of an XRPC request's source, which the first colon
// separates.
func (p *params) source() (collection, path string) {
	s := p.Required("source")
	collection, path, ok := strings.Cut(s, ":")
	if !ok || collection == "" || path == "" {
		p.Fail("source: %.200q is not <collection>:<path>", s)
	} else if strings.HasPrefix(path, ".") {
		p.Fail("source: %.200q has a dot behind the colon, which only the older endpoints have", s)
	}
	return collection, path
}

// oldSource returns the source of a request of the old form, whose path begins with a dot.
func (p *params) oldSource() string {
	collection, path := p.Required("collection"), p.Required("path")
	path, ok := strings.CutPrefix(path, ".")
	if !ok {
		p.Fail("path: %.200q does not begin with a dot, as .subject.uri does", path)
	}
	return collection + ":" + path
}

// oldDIDs returns the filter of /links: did is repeated, from_dids is separated by commas.
func (p *params) oldDIDs() []string {
	dids := p.list("did")
	from := p.Optional("from_dids")
	if from == "" {
		return dids
	}
	if len(dids) > 0 {
		p.Fail("from_dids: it cannot be combined with did")
	}
	return p.Values("from_dids", strings.Split(from, ","), maxFilter)
}

// page reads where a page begins, and how long it is.
func (p *params) page(q *query, k kind) {
	q.limit = p.Number("limit", viewapi.DefaultLimit, 1, viewapi.MaxLimit)
	if s := p.Optional("cursor"); s != "" {
		var ok bool
		if q.cursor, ok = parseCursor(s, k); !ok {
			p.Fail("cursor: %.200q is no cursor of this endpoint", s)
		}
	}
}
