package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
)

// runMan writes the manual page, of the program and of all its commands, in man(7)'s macros.
func runMan(_ context.Context, _ []string, w, _ io.Writer) error {
	c := program()
	fmt.Fprintf(w, ".TH MILLRACE 1 \"\" \"millrace %s\" \"User Commands\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roff(version), c.name, roff(c.summary))
	c.eachRunnable(func(s *command) { fmt.Fprintf(w, ".B %s\n.br\n", roff(s.usageLine())) })
	fmt.Fprint(w, ".SH DESCRIPTION\nEach command prints its part of this page with \\-\\-help.\n")
	c.eachRunnable(func(s *command) { s.writeMan(w) })
	fmt.Fprint(w, ".SH EXIT STATUS\n0: done, or stopped as asked; 1: failed, with the reason on standard error; 2: wrong usage.\n"+
		".SH ENVIRONMENT\nFlags with a name in MILLRACE_ beside them take their value from it; a flag wins. "+
		"A variable that begins so and names no flag is an error.\n")
	return nil
}

// eachRunnable calls f for c or, if it has sub-commands, for each of those.
func (c *command) eachRunnable(f func(*command)) {
	if c.subs == nil {
		f(c)
	}
	for _, s := range c.subs {
		s.eachRunnable(f)
	}
}

func (c *command) writeMan(w io.Writer) {
	fmt.Fprintf(w, ".SH %s\n%s: %s.\n", strings.ToUpper(roff(c.name)), roff(c.name), roff(c.summary))
	if c.about != "" {
		fmt.Fprintf(w, ".PP\n.nf\n%s\n.fi\n", roff(strings.TrimSpace(c.about)))
	}
	for _, g := range c.flagGroups() {
		fmt.Fprintf(w, ".SS %s\n", roff(g.title))
		for _, name := range g.names {
			c.writeManFlag(w, c.flags.Lookup(name))
		}
	}
	if c.more != nil {
		var text strings.Builder
		c.more(&text)
		fmt.Fprintf(w, ".PP\n.nf\n%s\n.fi\n", roff(strings.TrimSpace(text.String())))
	}
}

func (c *command) writeManFlag(w io.Writer, f *flag.Flag) {
	kind, text := flagKind(f)
	fmt.Fprintf(w, ".TP\n\\fB%s\\fR", roff("--"+f.Name))
	if kind != "" {
		fmt.Fprintf(w, " \\fI%s\\fR", roff(kind))
	}
	fmt.Fprintf(w, "\n%s.", roff(strings.TrimSuffix(text, ".")))
	if def := defaultOf(f, "Default: "); def != "" {
		fmt.Fprintf(w, " %s.", roff(def))
	}
	if c.hasTwin(f.Name) {
		fmt.Fprintf(w, " %s.", envName(f.Name))
	}
	fmt.Fprintln(w)
}

// roff escapes text: nothing in it is a macro or an escape.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "–", `\(en`, "…", "...").Replace(s)
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
