package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"strings"
)

// These stand in the list of candidates for what the shell completes by itself.
const (
	completeFile = ":file"
	completeDir  = ":dir"
)

func completionCommand() *command {
	return &command{
		name: "millrace completion", args: shells, summary: "print a script that completes commands, flags and their values",
		about: `  bash   source <(millrace completion bash)                          in ~/.bashrc
  zsh    source <(millrace completion zsh)                           in ~/.zshrc, after compinit
  fish   millrace completion fish | source                           in ~/.config/fish/config.fish

The scripts ask the millrace that is being typed, so they need no change when it does.`,
		flags: newFlags("completion"), run: runCompletion,
	}
}

// shells are those that there are scripts for.
const shells = "bash|zsh|fish"

// completionScripts returns the scripts by shell. They ask millrace completion words for
// candidates: a line each, with a tab before what it is for.
func completionScripts() map[string]string {
	return map[string]string{
		"bash": `_millrace() {
  local IFS=$'\n' line cur="${COMP_WORDS[COMP_CWORD]}" program="${COMP_WORDS[0]/#\~\//$HOME/}"
  COMPREPLY=()
  [ "$cur" = "=" ] && cur=
  for line in $("$program" completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null); do
    case "$line" in
      :file) compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -f -- "$cur")) ;;
      :dir) compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -d -- "$cur")) ;;
      *) COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done
}
complete -F _millrace millrace
`,
		"zsh": `#compdef millrace
_millrace() {
  local line
  local -a found
  for line in "${(@f)$(${(Q)~words[1]} completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    case "$line" in
      :file) compset -P 1 '-*='; _files ;;
      :dir) compset -P 1 '-*='; _files -/ ;;
      ?*) found+=("${line/$'\t'/:}") ;;
    esac
  done
  if (( $#found )); then _describe millrace found; fi
}
if [ "$funcstack[1]" = "_millrace" ]; then _millrace "$@"; else compdef _millrace millrace; fi
`,
		"fish": `function __millrace_complete
  set -l words (commandline -opc)
  set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
  for line in (command $program completion words -- $words[2..-1] (commandline -ct) 2>/dev/null)
    switch $line
      case ':file'
        complete -C "'' "(commandline -ct)
      case ':dir'
        __fish_complete_directories (commandline -ct)
      case '*'
        echo $line
    end
  end
end
complete -c millrace -f -a '(__millrace_complete)'
`,
	}
}

func runCompletion(_ context.Context, args []string, stdout, _ io.Writer) error {
	script, ok := completionScripts()[args[0]]
	if !ok {
		return usageError{errors.New("usage: millrace completion " + shells)}
	}
	_, err := io.WriteString(stdout, script)
	return err
}

// complete answers the scripts: what the last of words, which may be empty, can become.
func (c *command) complete(words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	words = joinEquals(words)
	last, before := words[len(words)-1], words[:len(words)-1]
	var valueOf *flag.Flag // the word to complete is its value
	for _, w := range before {
		if next := c.sub(w); next != nil && valueOf == nil {
			c = next
			continue
		}
		valueOf = needsValue(c.flags, w, valueOf)
	}
	switch name, value, ok := strings.Cut(last, "="); {
	case valueOf != nil:
		return valuesOf(valueOf, "", last)
	case ok && strings.HasPrefix(name, "-") && c.flags != nil:
		if f := c.flags.Lookup(strings.TrimLeft(name, "-")); f != nil {
			return valuesOf(f, name+"=", value)
		}
		return nil
	case strings.HasPrefix(last, "-"):
		return c.completeFlags(last)
	}
	return c.completeWords(last)
}

// joinEquals puts together again what bash takes apart: --intern = fdb.
func joinEquals(words []string) []string {
	var joined []string
	for i, w := range words {
		switch {
		case w != "=" || len(joined) == 0:
			joined = append(joined, w)
		case i == len(words)-1:
			joined = append(joined, "") // the value, which is completed alone
		}
	}
	return joined
}

// needsValue returns the flag that the word after w is the value of, or nil. w may be a value
// itself, of was.
func needsValue(fs *flag.FlagSet, w string, was *flag.Flag) *flag.Flag {
	if was != nil || fs == nil || !strings.HasPrefix(w, "-") || strings.Contains(w, "=") {
		return nil
	}
	f := fs.Lookup(strings.TrimLeft(w, "-"))
	if f == nil {
		return nil
	}
	if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
		return nil
	}
	return f
}

// valuesOf returns the values of a flag that begin with what was typed.
func valuesOf(f *flag.Flag, prefix, typed string) []string {
	kind, _ := flagKind(f)
	return alternatives(kind, prefix, typed)
}

// alternatives returns those words of kind, such as jetstream|builtin|FILE, that begin with what
// was typed.
func alternatives(kind, prefix, typed string) []string {
	var values []string
	for v := range strings.SplitSeq(kind, "|") {
		switch {
		case v == "FILE":
			values = append(values, completeFile)
		case v == "DIR":
			values = append(values, completeDir)
		case v != strings.ToUpper(v) && strings.HasPrefix(v, typed):
			values = append(values, prefix+v)
		}
	}
	return values
}

func (c *command) completeFlags(typed string) []string {
	found := []string{}
	add := func(name, text string) {
		if strings.HasPrefix(name, typed) {
			text, _, _ = strings.Cut(text, "\n")
			found = append(found, name+"\t"+text)
		}
	}
	for _, g := range c.flagGroups() {
		for _, name := range g.names {
			_, text := flagKind(c.flags.Lookup(name))
			add("--"+name, text)
		}
	}
	add("--help", "the manual")
	return found
}

func (c *command) completeWords(typed string) []string {
	var found []string
	for _, s := range c.subs {
		if strings.HasPrefix(s.word(), typed) {
			found = append(found, s.word()+"\t"+s.summary)
		}
	}
	return append(found, alternatives(strings.Trim(c.args, "[…]"), "", typed)...)
}
