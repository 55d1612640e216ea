package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// completed returns what the words after millrace are completed to, without explanations.
func completed(words ...string) []string {
	var found []string
	for _, c := range program().complete(words) {
		word, _, _ := strings.Cut(c, "\t")
		found = append(found, word)
	}
	return found
}

func TestComplete(t *testing.T) {
	for _, tc := range []struct {
		words string // the last one, after the last space, may be empty
		want  string // all of it, or with … at the end the first of it
	}{
		{"se", "serve"},
		{"intern ", "export import verify compact skip-ahead"},
		{"intern ex", "export"},
		{"intern export ", ":file"},
		{"serve --", "--relay --data-dir --listen --retention --memory …"},
		{"serve --intern", "--intern --intern-scope --intern-timeout"},
		{"serve --intern ", "pebble fdb off"},
		{"serve --intern = p", "pebble"}, // as bash splits it
		{"serve --intern =", "pebble fdb off"},
		{"serve --intern=p", "--intern=pebble"},
		{"serve --new-epoch --log-l", "--log-level"},
		{"serve --new-epoch ", ""},
		{"serve --data-dir ", ":dir"},
		{"serve --data-dir intern --log-format ", "text json"},
		{"serve --nope ", ""},
		{"dict train --compare ", ":file"},
		{"dict train ", ":file"},
		{"doctor --json ", ":dir"},
		{"completion ", "bash zsh fish"},
		{"nothing ", "serve tail …"},
	} {
		got := strings.Join(completed(strings.Split(tc.words, " ")...), " ")
		want, begins := strings.CutSuffix(tc.want, "…")
		if got != want && !(begins && strings.HasPrefix(got, want)) {
			t.Errorf("%q: got %q, want %q", tc.words, got, tc.want)
		}
	}
}

// A value may be a word or a file.
func TestCompleteWordOrFile(t *testing.T) {
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	fs.String("dictionary", "", "the dictionary, `builtin|jetstream|FILE`")
	if got := strings.Join(valuesOf(fs.Lookup("dictionary"), "", ""), " "); got != "builtin jetstream :file" {
		t.Errorf("got %q", got)
	}
}

// Every flag is in exactly one group of its command, and every group's flags exist.
func TestFlagGroups(t *testing.T) {
	program().eachRunnable(func(c *command) {
		var have []string
		for _, g := range c.flagGroups() {
			have = append(have, g.names...)
		}
		want := namesOf(c.flags, func(s string) string { return s })
		slices.Sort(have)
		if !slices.Equal(have, want) {
			t.Errorf("%s: the groups have\n%v, and the flags are\n%v", c.name, have, want)
		}
	})
}

// The scripts work in the shells that are installed.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	bin := binaries(t)
	for shell, script := range map[string]string{
		"bash": `source "$1"; complete -p millrace >/dev/null || exit 3
COMP_WORDS=(millrace serve --intern ""); COMP_CWORD=3; _millrace; echo "${COMPREPLY[*]}"
COMP_WORDS=(millrace serve --log-format = j); COMP_CWORD=4; _millrace; echo "${COMPREPLY[*]}"
COMP_WORDS=(millrace intern import some); COMP_CWORD=3; _millrace; echo "${COMPREPLY[*]}"
COMP_WORDS=('~/bin/millrace' serve --plc-export = some); COMP_CWORD=4; _millrace; echo "${COMPREPLY[*]}"`,
		"zsh": `compdef() { :; }; _describe() { print -r -- "${found%%:*}"; }; _files() { print -l -- ${words[CURRENT]}*(N); }
compset() { words[CURRENT]=${words[CURRENT]#${~3}}; }
source "$1"
words=(millrace serve --intern ""); CURRENT=4; _millrace
words=(millrace serve --log-format j); CURRENT=4; _millrace
words=(millrace intern import some); CURRENT=4; _millrace
words=('~/bin/millrace' serve --plc-export=some); CURRENT=3; _millrace`,
		"fish": `source $argv[1]
string join ' ' (complete -C 'millrace serve --intern ' | cut -f1)
string join ' ' (complete -C 'millrace serve --log-format j' | cut -f1)
string join ' ' (complete -C 'millrace intern import some' | cut -f1)
string replace -- --plc-export= '' (complete -C '~/bin/millrace serve --plc-export=some' | cut -f1)`,
	} {
		t.Run(shell, func(t *testing.T) {
			program, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("SKIPPED: %s is not installed", shell)
			}
			code, text := millrace(t, "completion", shell)
			if code != exitOK {
				t.Fatalf("exit code %d\n%s", code, text)
			}
			dir := t.TempDir()
			name := writeFile(t, filepath.Join(dir, "script"), text)
			writeFile(t, filepath.Join(dir, "somefile"), "")
			if err := os.Symlink(filepath.Dir(bin["millrace"]), filepath.Join(dir, "bin")); err != nil {
				t.Fatal(err)
			}
			args := map[string][]string{
				"bash": {"--norc", "-c", script, "bash", name}, "zsh": {"-f", "-c", script, "zsh", name}, "fish": {"--no-config", "-c", script, name},
			}[shell]
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(bin["millrace"])+":"+os.Getenv("PATH"), "HOME="+dir)
			out, err := cmd.CombinedOutput()
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			want := "pebble fdb off,json,somefile,somefile"
			if shell == "fish" {
				want = "fdb off pebble,json,somefile,somefile" // it sorts
			}
			if err != nil || strings.Join(lines, ",") != want {
				t.Errorf("%v; got\n%s\nwant %s", err, out, want)
			}
		})
	}
}

// The manual page has every command and flag, with text escaped, and groff has nothing to warn of.
// It is the same in the environment of a build.
func TestManPage(t *testing.T) {
	code, page := millrace(t, "man")
	if code != exitOK || !strings.HasPrefix(page, ".TH MILLRACE 1 ") {
		t.Fatalf("exit code %d\n%.200s", code, page)
	}
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	if _, got := millrace(t, "man"); got != page {
		t.Errorf("without HOME it is another: %s", cmp.Diff(page, got))
	}
	program().eachRunnable(func(c *command) {
		if !strings.Contains(page, "\n.SH "+strings.ToUpper(roff(c.name))+"\n") {
			t.Errorf("there is no section %s", c.name)
		}
		for _, name := range namesOf(c.flags, func(s string) string { return roff("--" + s) }) {
			if !strings.Contains(page, `\fB`+name+`\fR`) {
				t.Errorf("the flag %s of %s is missing", name, c.name)
			}
		}
	})
	for text, want := range map[string]string{
		"a --b": `a \-\-b`, `C:\x`: `C:\ex`, ".a\n.b c": `\&.a` + "\n" + `\&.b c`, "'a": `\&'a`, "1–2…": `1\(en2...`,
	} {
		if got := roff(text); got != want {
			t.Errorf("%q is escaped as %q, want %q", text, got, want)
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("SKIPPED: groff is not installed")
	}
	cmd := exec.CommandContext(t.Context(), groff, "-man", "-Tutf8", "-ww", "-z")
	cmd.Stdin = strings.NewReader(page)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%.1000s", err, out)
	}
}
