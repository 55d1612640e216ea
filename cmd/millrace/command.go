package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// command is a sub-command, or the program itself. Dispatch, --help, the man page and completion
// read the same ones.
type command struct {
	name    string // with the names of those above it: millrace intern export
	args    string // what it takes besides flags: "", FILE, FILE… (one or more), or [FILE…]
	summary string // one line
	about   string // paragraphs, for the manual
	more    func(w io.Writer)

	flags  *flag.FlagSet // nil: it has sub-commands
	groups []flagGroup   // of the flags; nil: one group of all
	twins  []string      // names of the flags that have a MILLRACE_* twin; see allTwins

	check func(args []string) error // of what flags and args say; nil: the rest is no mistake
	run   func(ctx context.Context, args []string, stdout, stderr io.Writer) error
	subs  []*command // nil: run
}

// flagGroup is the flags that serve one purpose, most used first.
type flagGroup struct {
	title string
	names []string
}

// allTwins in a command's twins says that every flag has one.
const allTwins = "*"

// program returns the command that is millrace itself.
func program() *command {
	return &command{
		name:    "millrace",
		summary: "the AT Protocol firehose as JSON events, exact, replayable, with UIDs",
		subs: []*command{
			serveCommand(), tailCommand(), dictCommand(), uidCommand(), internCommand(), referencesCommand(), linksCommand(), graphCommand(), verifyCommand(), doctorCommand(), backupCommand(),
			{name: "millrace version", summary: "print the version and how it was built", flags: newFlags("version"), run: runVersion},
			completionCommand(),
			{name: "millrace man", summary: "print the manual page", flags: newFlags("man"), run: runMan,
				about: "It is made of the same text as --help: millrace man | man -l -, or millrace man >millrace.1."},
		},
	}
}

// newFlags returns the set of the flags of millrace NAME, empty.
func newFlags(name string) *flag.FlagSet { return flag.NewFlagSet(name, flag.ContinueOnError) }

// word is the last part of the name.
func (c *command) word() string { return c.name[strings.LastIndexByte(c.name, ' ')+1:] }

// words are those of the sub-commands.
func (c *command) words() []string {
	var words []string
	for _, s := range c.subs {
		words = append(words, s.word())
	}
	return words
}

// sub returns the sub-command of that name, or nil.
func (c *command) sub(word string) *command {
	for _, s := range c.subs {
		if s.word() == word {
			return s
		}
	}
	return nil
}

// hasTwin reports whether a flag may be given by the environment.
func (c *command) hasTwin(flagName string) bool {
	return slices.Contains(c.twins, flagName) || slices.Contains(c.twins, allTwins)
}

func isHelpWord(s string) bool { return s == "-h" || s == "-help" || s == "--help" || s == "help" }

// dispatch finds the command that args name and runs it.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := program()
	switch {
	case len(args) > 0 && (args[0] == "--version" || args[0] == "-version"):
		args = []string{"version"}
	case len(args) > 1 && args[0] == "completion" && args[1] == "words":
		words := args[2:]
		if len(words) > 0 && words[0] == "--" {
			words = words[1:]
		}
		for _, candidate := range c.complete(words) {
			fmt.Fprintln(stdout, candidate)
		}
		return nil
	}
	for c.subs != nil {
		switch {
		case len(args) == 0:
			return usageError{fmt.Errorf("a sub-command is missing: %s; try %s --help", strings.Join(c.words(), ", "), c.name)}
		case args[0] == "help" && len(args) > 1: // help serve is serve --help
			args = append(args[1:len(args):len(args)], "--help")
		case isHelpWord(args[0]):
			c.printManual(stdout)
			return nil
		}
		next := c.sub(args[0])
		if next == nil {
			return usageError{fmt.Errorf("there is no sub-command %s %.40q%s; try %s --help", c.name, args[0], didYouMean(args[0], c.words()), c.name)}
		}
		c, args = next, args[1:]
	}
	args, err := c.parse(args, c.environ())
	if errors.Is(err, flag.ErrHelp) {
		c.printManual(stdout)
		return nil
	}
	if err != nil {
		return err
	}
	return adviseMachine(c.run(ctx, args, stdout, stderr))
}

// environ returns the variables that c takes flags from. With allTwins others are mistakes.
func (c *command) environ() []string {
	if slices.Contains(c.twins, allTwins) {
		return os.Environ()
	}
	var environ []string
	for _, name := range c.twins {
		if v, ok := os.LookupEnv(envName(name)); ok {
			environ = append(environ, envName(name)+"="+v)
		}
	}
	return environ
}

// parse sets the flags and returns the other arguments. Its error is that of the user, or
// flag.ErrHelp.
func (c *command) parse(args, environ []string) ([]string, error) {
	if err := parseFlags(c.flags, args, environ); err != nil {
		return nil, err
	}
	args = c.flags.Args()
	dir := c.flags.Lookup("data-dir")
	switch {
	case dir != nil && dir.DefValue != "" && dir.Value.String() == "":
		return nil, usageError{errors.New("--data-dir is empty: name a directory")}
	case c.args == "" && len(args) > 0:
		return nil, usageError{fmt.Errorf("%s takes no argument %.80q; see %s --help", c.name, args[0], c.name)}
	case len(args) == 0 && c.args != "" && c.args[0] != '[', len(args) > 1 && !strings.Contains(c.args, "…"):
		return nil, usageError{errors.New("usage: " + c.usageLine())}
	}
	if c.check != nil {
		if err := c.check(args); err != nil {
			return nil, usageError{err}
		}
	}
	return args, nil
}
