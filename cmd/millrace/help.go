package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"strings"
)

// flagGroups returns the command's flags, group by group.
func (c *command) flagGroups() []flagGroup {
	if c.groups != nil || c.flags == nil {
		return c.groups
	}
	g := flagGroup{title: "Flags"}
	c.flags.VisitAll(func(f *flag.Flag) { g.names = append(g.names, f.Name) })
	if g.names == nil {
		return nil
	}
	return []flagGroup{g}
}

// flagKind returns what stands for a flag's value in the manual, "" for a switch, and the text that
// explains it.
func flagKind(f *flag.Flag) (kind, text string) {
	kind, text = flag.UnquoteUsage(f)
	if c, ok := f.Value.(*choice); ok {
		return strings.Join(c.allowed, "|"), text
	}
	if kind == strings.ToLower(kind) {
		kind = strings.ToUpper(kind)
	} // else it is spelled as meant: builtin|FILE
	return kind, text
}

// usageLine is how the command is called.
func (c *command) usageLine() string {
	line := c.name
	if c.flagGroups() != nil {
		line += " [FLAGS]"
	}
	if c.subs != nil {
		line += " COMMAND"
	}
	return strings.TrimRight(line+" "+c.args, " ")
}

// printManual writes what --help prints.
func (c *command) printManual(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n\n  %s\n", c.name, c.summary, c.usageLine())
	if c.about != "" {
		fmt.Fprintf(w, "\n%s\n", strings.Trim(c.about, "\n"))
	}
	if c.subs != nil {
		fmt.Fprintln(w)
		for _, s := range c.subs {
			fmt.Fprintf(w, "  %-32s %s\n", strings.TrimRight(s.name+" "+s.args, " "), s.summary)
		}
		fmt.Fprintf(w, "\n%s COMMAND --help is the manual of each.\n", c.name)
	}
	for _, g := range c.flagGroups() {
		fmt.Fprintf(w, "\n%s\n\n", g.title)
		for _, name := range g.names {
			c.printFlag(w, c.flags.Lookup(name))
		}
	}
	if c.more != nil {
		fmt.Fprintln(w)
		c.more(w)
	}
}

// printFlag writes name, default and twin on one line, and the text below.
func (c *command) printFlag(w io.Writer, f *flag.Flag) {
	kind, text := flagKind(f)
	line := fmt.Sprintf("  %-34s %-18s", strings.TrimRight("--"+f.Name+" "+kind, " "), defaultOf(f, "default "))
	if c.hasTwin(f.Name) {
		line += " " + envName(f.Name)
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(w, "      %s\n", line)
	}
}

// defaultOf returns the default after the prefix, "" for a flag that has none.
func defaultOf(f *flag.Flag, prefix string) string {
	if def := cmp.Or(f.DefValue, "false"); def != "false" {
		return prefix + def
	}
	return ""
}
