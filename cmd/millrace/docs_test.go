package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"millrace/public"
)

// The documentation, from the repository's root. Everything in it that looks like ours must exist.
var docGlobs = []string{"README.md", "docs/*.md", "docs/examples/*", "docs/examples/*/*", "examples/*", "deploy/*", "deploy/grafana/*", "deploy/prometheus/*"}

const (
	operationsDoc = "docs/operations.md"
	wireDoc       = "docs/wire.md"
	linksDoc      = "docs/links.md"
	graphDoc      = "docs/graph.md"

	linksPackage = "public/internal/linksapi"
	graphPackage = "public/internal/graphapi"
	viewPackage  = "public/internal/viewapi"
)

// doc is one file of the documentation.
type doc struct{ name, text string }

func readDocs(t *testing.T) []doc {
	t.Helper()
	var docs []doc
	for _, glob := range docGlobs {
		names, err := filepath.Glob(filepath.Join("..", "..", glob))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if info, err := os.Stat(name); err != nil || info.IsDir() {
				continue
			}
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			rel, err := filepath.Rel(filepath.Join("..", ".."), name)
			if err != nil {
				t.Fatal(err)
			}
			docs = append(docs, doc{filepath.ToSlash(rel), string(raw)})
		}
	}
	if len(docs) < 8 {
		t.Fatalf("only %d files of documentation", len(docs))
	}
	return docs
}

func textOf(t *testing.T, docs []doc, name string) string {
	t.Helper()
	for _, d := range docs {
		if d.name == name {
			return d.text
		}
	}
	t.Fatalf("there is no %s", name)
	return ""
}

// find calls found for each match of the expression, with its groups, and where it is.
func find(docs []doc, expr string, found func(at string, groups []string)) {
	re := regexp.MustCompile(expr)
	for _, d := range docs {
		for i, line := range strings.Split(d.text, "\n") {
			for _, m := range re.FindAllStringSubmatch(line, -1) {
				found(fmt.Sprintf("%s:%d", d.name, i+1), m)
			}
		}
	}
}

// literals walks the calls of the named methods, or functions, in the Go files of dir but tests. It
// returns those of their arguments that are string literals, in order.
func literals(t *testing.T, dir string, methods ...string) [][]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, err)
	}
	var calls [][]string
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			called := ""
			switch f := call.Fun.(type) {
			case *ast.SelectorExpr:
				called = f.Sel.Name
				switch x := f.X.(type) {
				case *ast.Ident:
					called = x.Name + "." + called
				case *ast.CallExpr: // r.URL.Query().Get
					if of, ok := x.Fun.(*ast.SelectorExpr); ok {
						called = of.Sel.Name + "()." + called
					}
				}
			case *ast.Ident:
				called = f.Name
			}
			if !slices.Contains(methods, called) {
				return true
			}
			var args []string
			for _, a := range call.Args {
				if lit, ok := a.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if s, err := strconv.Unquote(lit.Value); err == nil {
						args = append(args, s)
					}
				}
			}
			if len(args) > 0 {
				calls = append(calls, args)
			}
			return true
		})
	}
	return calls
}

// flagsIn returns the names of all flags that the program in dir registers.
func flagsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	var methods []string
	for _, set := range []string{"fs", "flag", "flags", "f", "set"} {
		for _, m := range []string{"Bool", "Duration", "Float64", "Func", "Int", "Int64", "String", "Text", "Uint", "Uint64"} {
			methods = append(methods, set+"."+m, set+"."+m+"Var")
		}
		methods = append(methods, set+".Var", set+".BoolFunc")
	}
	flags := make(map[string]bool)
	for _, args := range literals(t, dir, methods...) {
		flags[args[0]] = true
	}
	return flags
}

// foreignFlags are flags of other programs that the documentation shows.
var foreignFlags = map[string]string{
	"no-install-recommends": "apt-get", "from": "Docker's COPY", "chown": "Docker's COPY", "mount": "Docker's RUN",
	"tags": "git", "always": "git", "dirty": "git", "now": "systemctl", "system": "useradd", "version": "all",
	"help": "all", "link-dest": "rsync", "rm": "docker", "name": "docker", "volume": "docker", "publish": "docker",
	"interval": "Docker's HEALTHCHECK", "timeout": "Docker's HEALTHCHECK", "data-binary": "curl", "ulimit": "docker",
	"show-error": "curl", "data-urlencode": "curl", "home-dir": "useradd", "shell": "useradd", "user": "docker", "config": "caddy",
	"no-audit": "npm", "no-fund": "npm", "ignore-scripts": "npm", "silent": "curl", "offline": "systemd-analyze", "exec": "fdbcli", "max-sub-rate": "Jetstream", "dest-cluster-file": "fdbrestore", "stop-timeout": "docker", "follow": "journalctl", "build": "docker", "experimental-websocket": "node",
}

// Every flag in the documentation exists, and every flag of millrace is in the manual of its
// command.
func TestDocsFlags(t *testing.T) {
	docs := readDocs(t)
	ours := flagsIn(t, "cmd/millrace")
	others := make(map[string]bool)
	for _, dir := range []string{"cmd/relaysim", "consume/relaysim", "cmd/bench", "dict/builtin"} {
		maps.Copy(others, flagsIn(t, dir))
	}
	if len(ours) < 40 || len(others) < 10 {
		t.Fatalf("found %d flags of millrace's and %d of others'", len(ours), len(others))
	}
	find(docs, `(?:^|[^-\w])--([a-z][a-z0-9-]*)`, func(at string, m []string) {
		if _, foreign := foreignFlags[m[1]]; !ours[m[1]] && !others[m[1]] && !foreign {
			t.Errorf("%s: there is no flag --%s (if it is another program's, add it to foreignFlags in docs_test.go)", at, m[1])
		}
	})
	manual := manuals(t)
	for name := range ours {
		if !regexp.MustCompile(`--` + regexp.QuoteMeta(name) + `\b`).MatchString(manual) {
			t.Errorf("no --help of millrace has --%s", name)
		}
	}
	for _, twin := range namesOf(serveCommand().flags, envName) {
		if !strings.Contains(manual, twin) {
			t.Errorf("no --help of millrace has %s", twin)
		}
	}
}

// manuals returns what all --help of millrace print.
func manuals(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	program().eachRunnable(func(c *command) {
		if code := run(t.Context(), append(strings.Fields(c.name)[1:], "--help"), &out, &out); code != exitOK {
			t.Errorf("%s --help: exit code %d", c.name, code)
		}
	})
	return out.String()
}

// Every MILLRACE_ variable in the documentation is a flag's twin, or one that the tests or scripts
// read.
func TestDocsVariables(t *testing.T) {
	docs := readDocs(t)
	known := make(map[string]bool)
	for _, twin := range namesOf(serveCommand().flags, envName) {
		known[twin] = true
	}
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "docs_test.go" {
			return err
		}
		raw, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`"(`+envTestPrefix+`[A-Z_]+)"`).FindAllStringSubmatch(string(raw), -1) {
			known[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	find(docs, `\b(`+envPrefix+`[A-Z_]+[A-Z])\b`, func(at string, m []string) {
		if !known[m[1]] {
			t.Errorf("%s: nothing reads %s", at, m[1])
		}
	})
}

// Every sub-command that the documentation names exists, and it names every one.
func TestDocsCommands(t *testing.T) {
	docs := readDocs(t)
	subs := make(map[string][]string)
	named := make(map[string]bool)
	known := make(map[string]bool)
	for _, c := range program().subs {
		known[c.word()] = true
		for _, s := range c.subs {
			subs[c.word()] = append(subs[c.word()], s.word())
		}
	}
	// In code only: in prose millrace is a noun.
	find(docs, "(?:`|^ {4}|/)millrace ([a-z]+)(?: ([a-z-]+))?", func(at string, m []string) {
		if !known[m[1]] {
			t.Errorf("%s: there is no millrace %s", at, m[1])
			return
		}
		named[m[1]] = true
		if of := subs[m[1]]; of != nil && m[2] != "" && !slices.Contains(of, m[2]) {
			t.Errorf("%s: there is no millrace %s %s", at, m[1], m[2])
		} else if m[2] != "" {
			named[m[1]+" "+m[2]] = true
		}
	})
	for name := range known {
		if !named[name] {
			t.Errorf("millrace %s is in no document; name it in README.md or %s", name, operationsDoc)
		}
		for _, sub := range subs[name] {
			if !named[name+" "+sub] {
				t.Errorf("millrace %s %s is in no document; name it in %s", name, sub, operationsDoc)
			}
		}
	}
}

// routes returns the paths, with their {wildcards}, that the Go files in dir serve.
func routes(t *testing.T, dir string) []string {
	t.Helper()
	var paths []string
	for _, args := range literals(t, dir, "mux.Handle", "mux.HandleFunc") {
		path := args[0][strings.IndexByte(args[0], '/'):]
		paths = append(paths, strings.TrimSuffix(path, "{$}"))
	}
	return paths
}

// viewRoutes returns the paths of the API of a view, which are in a table.
func viewRoutes(t *testing.T, dir string, least int) (paths []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", dir, "api.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\s+\{(xrpc \+ )?"([^"]+)", parse`).FindAllSubmatch(raw, -1) {
		path := string(m[2])
		if len(m[1]) > 0 {
			path = "/xrpc/blue.microcosm.links." + path
		}
		paths = append(paths, path)
	}
	if len(paths) < least {
		t.Fatalf("found only the routes %v of %s", paths, dir)
	}
	return paths
}

// serves reports whether a route of paths takes path.
func serves(paths []string, path string) bool {
	for _, route := range paths {
		route, rest, open := strings.Cut(route, "{path...}")
		expr := regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(route), `[^/]+`) + rest
		if open || strings.HasSuffix(route, "/") && route != "/" {
			expr += ".*"
		}
		if regexp.MustCompile("^" + expr + "/?$").MatchString(path) {
			return true
		}
	}
	return false
}

// Every endpoint in the documentation is served, and the documentation has every one.
func TestDocsEndpoints(t *testing.T) {
	docs := readDocs(t)
	public, operator := routes(t, "public"), routes(t, "cmd/millrace")
	if len(public) < 10 || len(operator) < 3 {
		t.Fatalf("found the routes %v and %v", public, operator)
	}
	links, graph := viewRoutes(t, linksPackage, 10), viewRoutes(t, graphPackage, 9)
	all := slices.Concat(public, operator, links, graph)
	// Code that is nothing but a path, and URLs of servers of ours.
	find(docs, "`(?:(?:GET|POST|HEAD|OPTIONS) )?(/[a-z0-9][^`?\\s]*)(?:\\?[^`]*)?`", func(at string, m []string) {
		if !serves(all, m[1]) && !isFile(m[1]) {
			t.Errorf("%s: nothing serves %s", at, m[1])
		}
	})
	find(docs, `(?:localhost|127\.0\.0\.1|\$listen|\$metrics):?(?:600[89])?(/[a-z][^\s'"?]*)`, func(at string, m []string) {
		if !serves(all, m[1]) {
			t.Errorf("%s: nothing serves %s", at, m[1])
		}
	})
	for _, tc := range []struct {
		doc   string
		paths []string
	}{{wireDoc, public}, {operationsDoc, operator}, {linksDoc, links}, {graphDoc, graph}} {
		text := textOf(t, docs, tc.doc)
		for _, path := range tc.paths {
			path, _, _ = strings.Cut(path, "{path...}")
			if !strings.Contains(text, "`"+path) && !strings.Contains(text, " "+path+"`") && !strings.Contains(text, strings.TrimSuffix(path, "/")+"`") {
				t.Errorf("%s has no row for %s", tc.doc, path)
			}
		}
	}
}

// isFile distinguishes paths of files from paths of URLs.
func isFile(path string) bool {
	first, _, _ := strings.Cut(path[1:], "/")
	return slices.Contains([]string{"etc", "var", "usr", "run", "proc", "dev", "tmp", "srv", "backup", "data", "lib"}, first)
}

// Every parameter in the documentation is read, and wire.md has every one.
func TestDocsParameters(t *testing.T) {
	docs := readDocs(t)
	known := make(map[string]bool)
	for _, args := range literals(t, "public", "q.Get", "Query().Get", "parseSwitch") {
		known[args[0]] = true
	}
	for _, name := range indexed(t, "public", "q") {
		known[name] = true
	}
	if len(known) < 10 {
		t.Fatalf("found only the parameters %v", known)
	}
	ofViews := make(map[string]bool)
	read := []string{"p.Required", "p.Optional", "p.list", "p.List", "p.Number", "p.Flag", "p.did", "p.dids"}
	for _, view := range []struct{ doc, dir string }{{linksDoc, linksPackage}, {graphDoc, graphPackage}} {
		text := textOf(t, docs, view.doc)
		for _, args := range append(literals(t, view.dir, read...), literals(t, viewPackage, read...)...) {
			if ofViews[args[0]] = true; !regexp.MustCompile("`" + args[0] + "[`=]|&" + args[0] + "=").MatchString(text) {
				t.Errorf("%s does not name the parameter %s", view.doc, args[0])
			}
		}
	}
	find(docs, `[?&]([a-zA-Z]+)=`, func(at string, m []string) {
		if !known[m[1]] && !ofViews[m[1]] && !adminOf(docs, at) {
			t.Errorf("%s: nothing reads the parameter %s", at, m[1])
		}
	})
	rows := make(map[string]bool) // by what the first cell, or the name of the list item, has
	for line := range strings.Lines(textOf(t, docs, wireDoc)) {
		cell, isRow := strings.CutPrefix(line, "|")
		item, isItem := strings.CutPrefix(line, "- ")
		if isRow {
			cell, _, _ = strings.Cut(cell, "|")
		} else if isItem {
			cell, _, _ = strings.Cut(item, ": ")
			cell = strings.ReplaceAll(cell, "`", "") // members of /status are no parameters
		} else {
			continue
		}
		for _, m := range regexp.MustCompile("`([a-zA-Z]+)(=[^`]*)?`|[?&]([a-zA-Z]+)=").FindAllStringSubmatch(cell, -1) {
			rows[m[1]+m[3]] = true
			if m[2] != "" && !known[m[1]] {
				t.Errorf("%s: nothing reads the parameter %s", wireDoc, m[1])
			}
		}
	}
	for name := range known {
		if !rows[name] {
			t.Errorf("%s has no row for the parameter %s", wireDoc, name)
		}
	}
}

// adminOf recognizes lines about the simulated relay, whose actions have parameters of their own.
func adminOf(docs []doc, at string) bool {
	line := lineAt(docs, at)
	return strings.Contains(line, "/admin") || strings.Contains(line, "subscribeRepos")
}

// indexed returns the string literals that the map of the given name is indexed with.
func indexed(t *testing.T, dir, name string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\b`+name+`\["([A-Za-z]+)"\]`).FindAllStringSubmatch(string(raw), -1) {
			keys = append(keys, m[1])
		}
	}
	return keys
}

func lineAt(docs []doc, at string) string {
	name, number, _ := strings.Cut(at, ":")
	n, err := strconv.Atoi(number)
	for _, d := range docs {
		if lines := strings.Split(d.text, "\n"); d.name == name && err == nil && n <= len(lines) {
			return lines[n-1]
		}
	}
	return ""
}

// docs/operations.md has a row for each check of /readyz.
func TestDocsReadiness(t *testing.T) {
	t.Parallel()
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, t.TempDir(), "--references=on", "--graph")
	var answer struct{ Checks []public.Check }
	if getJSON(t, "http://"+d.addr+"/readyz", &answer); len(answer.Checks) < 6 {
		t.Fatalf("/readyz: %+v", answer)
	}
	text := textOf(t, readDocs(t), operationsDoc)
	for _, c := range answer.Checks {
		if !strings.Contains(text, "\n| `"+c.Name+"` |") {
			t.Errorf("%s has no row for /readyz's check %s", operationsDoc, c.Name)
		}
	}
}

// Every link within the documentation leads to a file that is there, and to a heading in it.
func TestDocsLinks(t *testing.T) {
	docs := readDocs(t)
	find(docs, `\]\(([^)#:\s]*)(?:#([^)]*))?\)`, func(at string, m []string) {
		name, _, _ := strings.Cut(at, ":")
		if !strings.HasSuffix(name, ".md") {
			return
		}
		target := filepath.Join(filepath.Dir(name), m[1])
		if m[1] == "" {
			target = name
		}
		if _, err := os.Stat(filepath.Join("..", "..", target)); err != nil {
			t.Errorf("%s: there is no %s", at, m[1])
		} else if m[2] != "" && !slices.Contains(anchors(textOf(t, docs, target)), m[2]) {
			t.Errorf("%s: %s has no heading #%s", at, target, m[2])
		}
	})
}

// anchors returns the names that the headings of a document have in links.
func anchors(text string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}
