package setexpr

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"millrace/replay/graph"
)

const post = "at://did:plc:a/app.bsky.feed.post/3k"

// textOf returns the text of an expression, in which each operand that is no set has parentheses.
func textOf(e *graph.Expr, sets []Set) string {
	if e.Op == 0 {
		s := sets[slices.IndexFunc(sets, func(s Set) bool { return s.Leaf == e })]
		return s.Name.String() + ":" + s.Argument
	}
	operand := func(e *graph.Expr) string {
		if e.Op == 0 {
			return textOf(e, sets)
		}
		return "(" + textOf(e, sets) + ")"
	}
	op := map[graph.Op]string{graph.And: " and ", graph.Or: " or ", graph.AndNot: " and not "}[e.Op]
	return operand(e.Left) + op + operand(e.Right)
}

func TestParse(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"follows:did:plc:a", "follows:did:plc:a"},
		{"\t( (follows:did:plc:a)\n) ", "follows:did:plc:a"},
		{"follows:did:plc:a and followers:did:web:b.example", "follows:did:plc:a and followers:did:web:b.example"},
		{"blocks:did:plc:a or blockedBy:did:plc:a and likers:" + post, "blocks:did:plc:a or (blockedBy:did:plc:a and likers:" + post + ")"},
		{"(blocks:did:plc:a or members:" + post + ")and reposters:" + post, "(blocks:did:plc:a or members:" + post + ") and reposters:" + post},
		{"follows:did:plc:a and(follows:did:plc:b and not follows:did:plc:c)", "follows:did:plc:a and (follows:did:plc:b and not follows:did:plc:c)"},
		{"follows:did:plc:a and not follows:did:plc:b and follows:did:plc:c", "(follows:did:plc:a and not follows:did:plc:b) and follows:did:plc:c"},
		{"follows:did:plc:a and not(follows:did:plc:b and follows:did:plc:c)", "follows:did:plc:a and not (follows:did:plc:b and follows:did:plc:c)"},
		{"liked:did:plc:a or (liked:did:plc:b or liked:did:plc:c)", "liked:did:plc:a or (liked:did:plc:b or liked:did:plc:c)"},
		{strings.Repeat("(", maxDepth) + "liked:did:plc:a" + strings.Repeat(")", maxDepth), "liked:did:plc:a"},
		{"(((((liked:did:plc:a))))) or (((((liked:did:plc:b))))) or (((((liked:did:plc:c))))) or (((((liked:did:plc:d)))))", "((liked:did:plc:a or liked:did:plc:b) or liked:did:plc:c) or liked:did:plc:d"},
	} {
		e, sets, err := Parse(tc.text)
		if err != nil {
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		if got := textOf(e, sets); got != tc.want {
			t.Errorf("%s: got %s", tc.text, got)
		}
	}
}

func TestErrors(t *testing.T) {
	const a = "follows:did:plc:a"
	for _, tc := range []struct{ text, want string }{
		{"", `at the end (byte 0): expected a set, such as follows:<did>, or "("`},
		{a + " and ", `at the end (byte 22): expected a set, such as follows:<did>, or "("`},
		{a + " or not " + a, `at byte 21, "not": "not" may follow "and" only`},
		{"not " + a, `at byte 0, "not": "not" may follow "and" only`},
		{a + " and not not " + a, `at byte 26, "not": "not" may follow "and" only`},
		{a + " AND " + a, `at byte 18, "AND": expected "and", "or" or the end`},
		{"(" + a, `at the end (byte 18): expected "and", "or" or ")"`},
		{a + ")", `at byte 17, ")": no parenthesis is open here`},
		{a + " ()", `at byte 18, "(": expected "and", "or" or the end`},
		{"()", `at byte 1, ")": expected a set, such as follows:<did>, or "("`},
		{"knows:did:plc:a", `at byte 0, "knows:did:plc:a": unknown set name; the names are follows, followers, blocks, blockedBy, members, likers, reposters, liked`},
		{"follows:a.example", `at byte 0, "follows:a.example": expected follows:<did>`},
		{"likers:did:plc:a", `at byte 0, "likers:did:plc:a": expected likers:<at-uri>, the AT URI of a record with a DID`},
		{"likers:at://did:plc:a/app.bsky.feed.post", `at byte 0, "likers:at://did:plc:a/app.bsky.feed.post": expected likers:<at-uri>, the AT URI of a record with a DID`},
		{"members:at://a.example/app.bsky.feed.post/3k", `at byte 0, "members:at://a.example/app.bsky.feed.pos": expected members:<at-uri>, the AT URI of a record with a DID`},
		{a + " or liked:did:plc:b", `at byte 21, "liked:did:plc:b": accounts and records do not mix: liked is of records, follows of accounts`},
		{strings.Repeat(a+" or ", MaxSets) + a, `at byte 168, "follows:did:plc:a": more than 8 sets`},
		{strings.Repeat("(", maxDepth+1), `at byte 16, "(": parentheses nest deeper than 16`},
	} {
		_, _, err := Parse(tc.text)
		var failure *SyntaxError
		if !errors.As(err, &failure) || failure.Error() != tc.want {
			t.Errorf("%s:\n got %v\nwant %s", tc.text, err, tc.want)
		}
	}
}

// truth evaluates an expression for one member, which is in the sets whose argument is in.
func truth(e *graph.Expr, sets []Set, in map[string]bool) bool {
	if e.Op == 0 {
		return in[sets[slices.IndexFunc(sets, func(s Set) bool { return s.Leaf == e })].Argument]
	}
	left, right := truth(e.Left, sets, in), truth(e.Right, sets, in)
	return map[graph.Op]bool{graph.And: left && right, graph.Or: left || right, graph.AndNot: left && !right}[e.Op]
}

// generator writes a random expression and its meaning together, and knows nothing of Expr.
type generator struct {
	*rand.Rand
	in   map[string]bool
	sets int // that may still be named
}

// expr returns a text of a precedence: 0 of or, 1 of and, 2 of an operand.
func (g *generator) expr(precedence int) (text string, is bool) {
	switch op := g.IntN(4); {
	case g.sets == 0 || op == 0:
		argument := "did:plc:" + string(rune('a'+g.IntN(4)))
		return "follows:" + argument, g.in[argument]
	case op == 1 || precedence == 2:
		g.sets--
		text, is = g.expr(0)
		return "( " + text + ")", is
	case op == 2 && precedence == 0:
		g.sets--
		left, a := g.expr(0)
		right, b := g.expr(1)
		return left + " or " + right, a || b
	default:
		g.sets--
		left, a := g.expr(1)
		right, b := g.expr(2)
		if g.IntN(2) == 0 {
			return left + " and not " + right, a && !b
		}
		return left + "\tand " + right, a && b
	}
}

// TestMeaning holds what is parsed against what the generator means. It prints its seed.
func TestMeaning(t *testing.T) {
	seed := rand.Uint64()
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	for range 2000 {
		g.sets, g.in = MaxSets-1, make(map[string]bool)
		for _, name := range []string{"a", "b", "c", "d"} {
			g.in["did:plc:"+name] = g.IntN(2) == 0
		}
		text, want := g.expr(0)
		e, sets, err := Parse(text)
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, text, err)
		}
		if truth(e, sets, g.in) != want {
			t.Fatalf("seed %d: %s: is %t, want %t; parsed as %s", seed, text, !want, want, textOf(e, sets))
		}
		checkText(t, text, e, sets)
	}
}

// checkText checks that an expression's text stands for it, and that its sets are in order.
func checkText(t *testing.T, text string, e *graph.Expr, sets []Set) {
	t.Helper()
	want := textOf(e, sets)
	again, named, err := Parse(want)
	if err != nil {
		t.Fatalf("%q becomes %q: %v", text, want, err)
	}
	if got := textOf(again, named); got != want {
		t.Fatalf("%q becomes %q, then %q", text, want, got)
	}
	for i, s := range sets {
		if other := named[i]; s.Name != other.Name || s.Argument != other.Argument {
			t.Fatalf("%q: set %d is %s:%s, then %s:%s", text, i, s.Name, s.Argument, other.Name, other.Argument)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "not", "(((", "follows:did:plc:a", "follows:did:plc:a and not (blocks:did:plc:b or followers:did:plc:c)",
		"liked:did:plc:a or follows:did:plc:b", "likers:" + post + " and members:" + post, "follows:did:plc:a)",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, sets, err := Parse(text)
		if err == nil {
			checkText(t, text, e, sets)
			return
		}
		var failure *SyntaxError
		if !errors.As(err, &failure) || failure.Offset+len(failure.Near) > len(text) || text[failure.Offset:failure.Offset+len(failure.Near)] != failure.Near {
			t.Fatalf("%q: %+v does not say what is wrong", text, err)
		}
	})
}
