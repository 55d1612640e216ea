package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
)

func runMan(_ context.Context, _ []string, stdout, _ io.Writer) error {
	_, err := stdout.Write(program().appendMan(nil))
	return err
}

// appendMan appends the manual page, of the program and of all its commands, in man(7)'s macros.
func (c *command) appendMan(dst []byte) []byte {
	b := bytes.NewBuffer(dst)
	fmt.Fprintf(b, ".TH MILLRACE 1 \"\" \"millrace %s\" \"User Commands\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roff(version), c.name, roff(c.summary))
	c.eachRunnable(func(s *command) { fmt.Fprintf(b, ".B %s\n.br\n", roff(s.usageLine())) })
	b.WriteString(".SH DESCRIPTION\nEach command prints its part of this page with \\-\\-help.\n")
	c.eachRunnable(func(s *command) { s.writeMan(b) })
	b.WriteString(".SH EXIT STATUS\n0: done, or stopped as asked; 1: failed, with the reason on standard error; 2: wrong usage.\n" +
		".SH ENVIRONMENT\nFlags with a name in MILLRACE_ beside them take their value from it; a flag wins. " +
		"A variable that begins so and names no flag is an error.\n")
	return b.Bytes()
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

func (c *command) writeMan(b *bytes.Buffer) {
	fmt.Fprintf(b, ".SH %s\n%s: %s.\n", strings.ToUpper(roff(c.name)), roff(c.name), roff(c.summary))
	if c.about != "" {
		fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", roff(strings.TrimSpace(c.about)))
	}
	for _, g := range c.flagGroups() {
		fmt.Fprintf(b, ".SS %s\n", roff(g.title))
		for _, name := range g.names {
			c.writeManFlag(b, c.flags.Lookup(name))
		}
	}
	if c.more != nil {
		var text bytes.Buffer
		c.more(&text)
		fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", roff(strings.TrimSpace(text.String())))
	}
}

func (c *command) writeManFlag(b *bytes.Buffer, f *flag.Flag) {
	kind, text := flagKind(f)
	fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff("--"+f.Name))
	if kind != "" {
		fmt.Fprintf(b, " \\fI%s\\fR", roff(kind))
	}
	fmt.Fprintf(b, "\n%s.", roff(strings.TrimSuffix(text, ".")))
	if def := defaultOf(f, "Default: "); def != "" {
		fmt.Fprintf(b, " %s.", roff(def))
	}
	if c.hasTwin(f.Name) {
		fmt.Fprintf(b, " %s.", envName(f.Name))
	}
	b.WriteByte('\n')
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
