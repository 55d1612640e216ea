package setexpr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"millrace/replay/graph"
)

const (
	// MaxSets is how many sets an expression may name.
	MaxSets = 8
	// maxDepth is how deep parentheses may nest.
	maxDepth = 16
)

// nameInfo is what the parser knows of a Name.
type nameInfo struct {
	text    string
	uri     bool // the argument is an AT URI
	records bool // the set is of records
}

// names returns the names in the order of their numbers.
func names() [Names]nameInfo {
	return [...]nameInfo{
		Follows:   {text: "follows"},
		Followers: {text: "followers"},
		Blocks:    {text: "blocks"},
		BlockedBy: {text: "blockedBy"},
		Members:   {text: "members", uri: true},
		Likers:    {text: "likers", uri: true},
		Reposters: {text: "reposters", uri: true},
		Liked:     {text: "liked", records: true},
	}
}

func (n Name) String() string { return names()[n].text }

// SyntaxError says where a text is no expression, and why.
type SyntaxError struct {
	Offset int    // bytes before what is wrong
	Near   string // what is wrong, "" at the end of the text
	Reason string
}

func (e *SyntaxError) Error() string {
	if e.Near == "" {
		return fmt.Sprintf("at the end (byte %d): %s", e.Offset, e.Reason)
	}
	return fmt.Sprintf("at byte %d, %.40q: %s", e.Offset, e.Near, e.Reason)
}

// Parse returns the expression that a text is, and its sets in order. The error is a *SyntaxError.
func Parse(text string) (*graph.Expr, []Set, error) {
	p := parser{text: text}
	p.advance()
	e := p.expr()
	if p.token != "" {
		if p.token == ")" {
			p.fail("no parenthesis is open here")
		} else {
			p.fail(`expected "and", "or" or the end`)
		}
	}
	if p.err != nil {
		return nil, nil, p.err
	}
	return e, p.sets, nil
}

// parser keeps the first error. After it the token is "", so that it comes to an end.
type parser struct {
	text   string
	offset int    // of token
	token  string // "(", ")", or up to the next white space or parenthesis; "" at the end
	sets   []Set  // the first says what all are of
	depth  int
	err    *SyntaxError
}

const space = " \t\r\n"

// advance goes to the next token.
func (p *parser) advance() {
	rest := p.text[p.offset+len(p.token):]
	rest = strings.TrimLeft(rest, space)
	p.offset = len(p.text) - len(rest)
	n := strings.IndexAny(rest, space+"()")
	switch {
	case n < 0:
		n = len(rest)
	case n == 0:
		n = 1
	}
	p.token = rest[:n]
}

// accept goes to the next token if the current one is token, and reports whether it is.
func (p *parser) accept(token string) bool {
	if p.token != token {
		return false
	}
	p.advance()
	return true
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = &SyntaxError{p.offset, p.token, fmt.Sprintf(format, args...)}
		p.offset, p.token = len(p.text), ""
	}
}

func (p *parser) expr() *graph.Expr {
	e := p.term()
	for p.accept("or") {
		e = graph.Join(graph.Or, e, p.term())
	}
	return e
}

func (p *parser) term() *graph.Expr {
	e := p.operand()
	for p.accept("and") {
		op := graph.And
		if p.accept("not") {
			op = graph.AndNot
		}
		e = graph.Join(op, e, p.operand())
	}
	return e
}

// operand returns nil if it fails.
func (p *parser) operand() *graph.Expr {
	if p.token != "(" {
		return p.set()
	}
	if p.depth == maxDepth {
		p.fail("parentheses nest deeper than %d", maxDepth)
		return nil
	}
	p.depth++
	p.advance()
	e := p.expr()
	p.depth--
	if !p.accept(")") {
		p.fail(`expected "and", "or" or ")"`)
	}
	return e
}

func (p *parser) set() *graph.Expr {
	name, argument, ok := strings.Cut(p.token, ":")
	all := names()
	n := slices.IndexFunc(all[:], func(i nameInfo) bool { return i.text == name })
	switch {
	case p.token == "not":
		p.fail(`"not" may follow "and" only`)
	case !ok:
		p.fail(`expected a set, such as follows:<did>, or "("`)
	case n < 0:
		p.fail("unknown set name; the names are %s", list(all[:]))
	case len(p.sets) == MaxSets:
		p.fail("more than %d sets", MaxSets)
	case all[n].uri && !isRecord(argument):
		p.fail("expected %s:<at-uri>, the AT URI of a record with a DID", name)
	case !all[n].uri && !isDID(argument):
		p.fail("expected %s:<did>", name)
	default:
		s := NewSet(Name(n), argument)
		p.sets = append(p.sets, s)
		if of := p.sets[0].Name; all[n].records != all[of].records {
			p.fail("accounts and records do not mix: %s is of %s, %s of %s", s.Name, s.Name.members(), of, of.members())
		}
		p.advance()
		return s.Leaf
	}
	return nil
}

// members says what the sets of a name are of.
func (n Name) members() string {
	if names()[n].records {
		return "records"
	}
	return "accounts"
}

func list(all []nameInfo) string {
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].text
	}
	return strings.Join(texts, ", ")
}

func isDID(s string) bool {
	_, err := syntax.ParseDID(s)
	return err == nil
}

func isRecord(s string) bool {
	uri, err := syntax.ParseATURI(s)
	return err == nil && uri.Authority().IsDID() && uri.RecordKey() != ""
}
