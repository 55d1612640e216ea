package setexpr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"
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

// Parse returns the canonical form of a text. The error is a *SyntaxError.
func Parse(text string) (*Expr, error) {
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
		return nil, p.err
	}
	return &e, nil
}

// parser keeps the first error. After it the token is "", so that it comes to an end.
type parser struct {
	text   string
	offset int    // of token
	token  string // "(", ")", or up to the next white space or parenthesis; "" at the end
	sets   int
	depth  int
	of     *Set // the first, which says what all are of
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

func (p *parser) expr() Expr {
	e := Expr{Op: Or}
	e.add(p.term())
	for p.accept("or") {
		e.add(p.term())
	}
	return e.simple()
}

func (p *parser) term() Expr {
	e := Expr{Op: And}
	e.add(p.operand())
	for p.accept("and") {
		subtracted := p.accept("not")
		operand := p.operand()
		operand.Subtracted = subtracted
		e.add(operand)
	}
	return e.simple()
}

// add appends an operand. Of one with e's operator it appends the operands.
func (e *Expr) add(operand Expr) {
	if operand.Op == e.Op && !operand.Subtracted {
		e.Operands = append(e.Operands, operand.Operands...)
	} else {
		e.Operands = append(e.Operands, operand)
	}
}

// simple returns the operand if there is only one, else e itself.
func (e *Expr) simple() Expr {
	if len(e.Operands) == 1 {
		return e.Operands[0]
	}
	return *e
}

func (p *parser) operand() Expr {
	if p.token != "(" {
		return Expr{Set: p.set()}
	}
	if p.depth == maxDepth {
		p.fail("parentheses nest deeper than %d", maxDepth)
		return Expr{}
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

func (p *parser) set() (s Set) {
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
	case p.sets == MaxSets:
		p.fail("more than %d sets", MaxSets)
	case all[n].uri && !isRecord(argument):
		p.fail("expected %s:<at-uri>, the AT URI of a record with a DID", name)
	case !all[n].uri && !isDID(argument):
		p.fail("expected %s:<did>", name)
	default:
		s = Set{Name(n), argument}
		p.count(s)
		p.advance()
	}
	return s
}

// count counts a set. It fails unless all sets are of accounts, or all of records.
func (p *parser) count(s Set) {
	p.sets++
	if p.of == nil {
		p.of = &s
	}
	if of := p.of.Name; names()[s.Name].records != names()[of].records {
		p.fail("accounts and records do not mix: %s is of %s, %s of %s", s.Name, s.Name.members(), of, of.members())
	}
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
