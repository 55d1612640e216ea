package linksapi

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"millrace/replay/references"
	"millrace/translate"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	// maxFilter is how many DIDs, or subjects, a filter may name.
	maxFilter = 1000
	// maxWait is how long a request may wait until links have come to a position.
	maxWait = 10 * time.Second
)

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

	at    *translate.Position // nil: wherever links are
	frame references.Position // of at
	wait  time.Duration
}

// params reads the parameters of a request. It keeps the first error.
type params struct {
	values url.Values
	err    *apiError
}

func newParams(raw string) *params {
	values, err := url.ParseQuery(raw)
	p := &params{values: values}
	if err != nil {
		p.fail("query string: %v", err)
	}
	return p
}

func (p *params) fail(format string, args ...any) {
	if p.err == nil {
		p.err = invalidRequest(format, args...)
	}
}

// optional returns the value of a parameter that may be given once, "" if it is not there.
func (p *params) optional(name string) string {
	values := p.values[name]
	if len(values) > 1 {
		p.fail("%s: it is given %d times", name, len(values))
	}
	return p.values.Get(name)
}

func (p *params) required(name string) string {
	if !p.values.Has(name) {
		p.fail("%s: it is missing", name)
	}
	return p.optional(name)
}

// list returns the values of a parameter that may be repeated. Empty ones stand for none.
func (p *params) list(name string) []string { return p.filter(name, p.values[name]) }

func (p *params) filter(name string, values []string) (list []string) {
	for _, v := range values {
		if v = strings.TrimSpace(v); v != "" {
			list = append(list, v)
		}
	}
	if len(list) > maxFilter {
		p.fail("%s: %d values are more than %d", name, len(list), maxFilter)
	}
	return list
}

// number returns a number from low to high, or, if it is not there, missing.
func (p *params) number(name string, missing, low, high int) int {
	s := p.optional(name)
	if s == "" {
		return missing
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		p.fail("%s: %.40q is no number from %d to %d", name, s, low, high)
	}
	return n
}

func (p *params) flag(name string) bool {
	switch s := p.optional(name); s {
	case "", "false":
		return false
	case "true":
		return true
	default:
		p.fail("%s: %.40q is neither true nor false", name, s)
		return false
	}
}

// source returns the collection and the path of an XRPC request's source, which the first colon
// separates.
func (p *params) source() (collection, path string) {
	s := p.required("source")
	collection, path, ok := strings.Cut(s, ":")
	if !ok {
		p.fail("source: %.200q is not <collection>:<path>", s)
	}
	return collection, path
}

// oldSource returns the source of a request of the old form, whose path begins with a dot. A path
// without a dot becomes the empty source, which no record has.
func (p *params) oldSource() string {
	collection, path := p.required("collection"), p.required("path")
	if path, ok := strings.CutPrefix(path, "."); ok {
		return collection + ":" + path
	}
	return ""
}

// oldDIDs returns the filter of /links: did is repeated, from_dids is separated by commas.
func (p *params) oldDIDs() []string {
	dids := p.list("did")
	from := p.optional("from_dids")
	if from == "" {
		return dids
	}
	if len(dids) > 0 {
		p.fail("from_dids: it excludes did")
	}
	return p.filter("from_dids", strings.Split(from, ","))
}

// page reads where a page begins, and how long it is.
func (p *params) page(q *query, k kind) {
	q.limit = p.number("limit", defaultLimit, 1, maxLimit)
	if s := p.optional("cursor"); s != "" {
		var ok bool
		if q.cursor, ok = parseCursor(s, k); !ok {
			p.fail("cursor: %.200q is no cursor of this endpoint", s)
		}
	}
}

// view reads up to where in the stream links must have come.
func (p *params) view(q *query) {
	q.wait = time.Duration(p.number("wait", 0, 0, int(maxWait.Milliseconds()))) * time.Millisecond
	if s := p.optional("at"); s != "" {
		at, err := translate.ParsePosition(s)
		if err != nil {
			p.fail("at: %v", err)
		}
		q.at = &at
	}
}
