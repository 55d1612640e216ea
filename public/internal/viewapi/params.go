package viewapi

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"millrace/translate"
)

const (
	// DefaultLimit is how long a page is if the request does not say.
	DefaultLimit = 100
	// MaxLimit is how long a page may be.
	MaxLimit = 1000
	// maxWait is how long a request may wait until a view has come to a position.
	maxWait = 10 * time.Second
)

// Params reads the parameters of a request. It keeps the first error.
type Params struct {
	values url.Values
	err    *Error
}

// NewParams parses a query string.
func NewParams(raw string) *Params {
	values, err := url.ParseQuery(raw)
	p := &Params{values: values}
	if err != nil {
		p.Fail("query string: %v", err)
	}
	return p
}

// Err is the first error, nil if there is none.
func (p *Params) Err() error {
	if p.err == nil {
		return nil
	}
	return p.err
}

// Fail says that a parameter is wrong.
func (p *Params) Fail(format string, args ...any) {
	if p.err == nil {
		p.err = Invalid(format, args...)
	}
}

// Optional returns the value of a parameter that may be given once, "" if it is not there.
func (p *Params) Optional(name string) string {
	values := p.values[name]
	if len(values) > 1 {
		p.Fail("%s: it is given %d times, and may be given once", name, len(values))
	}
	return p.values.Get(name)
}

// Required returns the value of a parameter that must be given once.
func (p *Params) Required(name string) string {
	value := p.Optional(name)
	if value == "" {
		p.Fail("%s: it is missing", name)
	}
	return value
}

// List returns the values, most at the most, of a parameter that may be repeated. Empty ones stand
// for none.
func (p *Params) List(name string, most int) []string { return p.Values(name, p.values[name], most) }

// Values is List for values that do not come from the query string.
func (p *Params) Values(name string, values []string, most int) (list []string) {
	for _, v := range values {
		if v = strings.TrimSpace(v); v != "" {
			list = append(list, v)
		}
	}
	if len(list) > most {
		p.Fail("%s: %d values are more than %d, the most that are allowed", name, len(list), most)
	}
	return list
}

// Number returns a number from low to high, or, if it is not there, missing.
func (p *Params) Number(name string, missing, low, high int) int {
	s := p.Optional(name)
	if s == "" {
		return missing
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		p.Fail("%s: %.40q is no number from %d to %d", name, s, low, high)
	}
	return n
}

// Flag returns whether a parameter is true; if it is not there, it is not.
func (p *Params) Flag(name string) bool {
	switch s := p.Optional(name); s {
	case "", "false":
		return false
	case "true":
		return true
	default:
		p.Fail("%s: %.40q is neither true nor false", name, s)
		return false
	}
}

// At reads the position that a view must have reached, and how long to wait for it.
func (p *Params) At() At {
	at := At{wait: time.Duration(p.Number("wait", 0, 0, int(maxWait.Milliseconds()))) * time.Millisecond}
	if s := p.Optional("at"); s != "" {
		position, err := translate.ParsePosition(s)
		if err != nil {
			p.Fail("at: %v", err)
		}
		at.position = &position
	}
	return at
}
