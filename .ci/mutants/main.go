// mutants tries the wrong edits that are kept beside it: each must be caught by the test that it
// names.
//
// A file NAME.patch begins with two lines, and the edit follows:
//
//	Promise: what the edit breaks, in one line
//	Test: ./package TestName
//
// The edit is applied to copies of the files that it changes, which the go command reads in place
// of the real ones (-overlay). Where the named test passes, all tests of its package and of the
// changed packages run, to say what catches the edit instead. The run fails all the same. So it
// does where any of the patches does not apply. As many edits are tried at a time as there are
// processors.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	dir     = ".ci/mutants"
	page    = ".ci/mutants/README.md"
	heading = "| wrong edit | breaks the promise | caught by |\n|---|---|---|\n"
	quick   = 10 * time.Second // half of the edits must fail a test of their package in that time
)

// mutant is one wrong edit.
type mutant struct {
	name, promise string
	pkg, test     string // what must catch it
	patch         string
	files         []string // that it changes
}

var (
	header  = regexp.MustCompile(`^Promise: (.+)\nTest: (\./\S+) (Test\w+)\n\n`)
	changed = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`)
)

func main() {
	var o options
	flag.IntVar(&o.part, "part", -1, "try each twentieth edit only, from this one on: 0 to 19")
	flag.DurationVar(&o.limit, "timeout", 2*time.Minute, "the time for one test, or for all tests of one package")
	flag.BoolVar(&o.named, "named", false, "where the named test passes, look for no other test that catches the edit")
	flag.BoolVar(&o.table, "table", false, "write the table of edits into "+page+", and try none")
	flag.BoolVar(&o.check, "check", false, "say whether all edits apply, the table is current and make test runs the tests, and try none")
	flag.Parse()
	if err := run(o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// options are those of the command line.
type options struct {
	part                int
	limit               time.Duration
	named, table, check bool
}

// run tries the edits that are named, or all.
func run(o options, names []string) error {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	if err := os.Chdir(strings.TrimSpace(string(root))); err != nil {
		return err
	}
	mutants, err := read()
	if err != nil {
		return err
	}
	if o.table {
		return writeTable(mutants)
	}
	if o.check {
		return errors.Join(checkAll(mutants), checkTable(mutants))
	}
	if err := checkAll(mutants); err != nil {
		return err
	}
	results := results{start: time.Now()}
	var tries errgroup.Group
	tries.SetLimit(runtime.NumCPU())
	for i, m := range mutants {
		if o.part >= 0 && i%20 != o.part || len(names) > 0 && !slices.Contains(names, m.name) {
			continue
		}
		tries.Go(func() error {
			if err := results.try(m, o); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			return nil
		})
	}
	if err := tries.Wait(); err != nil {
		return err
	}
	return results.end()
}

// read returns all edits by name.
func read() ([]mutant, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var mutants []mutant
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		m := mutant{name: strings.TrimSuffix(filepath.Base(name), ".patch"), patch: string(text)}
		h := header.FindStringSubmatch(m.patch)
		if h == nil {
			return nil, fmt.Errorf("%s does not begin with a line of its promise, one of its test, and an empty one", name)
		}
		m.promise, m.pkg, m.test = h[1], h[2], h[3]
		for _, f := range changed.FindAllStringSubmatch(m.patch, -1) {
			m.files = append(m.files, f[1])
		}
		if len(m.files) == 0 {
			return nil, fmt.Errorf("%s changes no file", name)
		}
		mutants = append(mutants, m)
	}
	return mutants, nil
}

// checkAll applies each edit, and returns an error that names those that do not apply.
func checkAll(mutants []mutant) error {
	var errs []error
	for _, m := range mutants {
		_, remove, err := m.apply()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s does not apply: %w", m.name, err))
			continue
		}
		remove()
	}
	if errs != nil {
		errs = append(errs, errors.New("make these edits again, each alone: git diff -U1 of it goes below the first lines of NAME.patch"))
	}
	return errors.Join(errs...)
}

// apply writes the edited files and returns the name of an overlay that has them.
func (m mutant) apply() (overlay string, remove func(), err error) {
	tmp, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(tmp)
		}
	}()
	root, err := os.Getwd()
	if err != nil {
		return "", nil, err
	}
	replace := map[string]string{}
	for _, f := range m.files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", nil, err
		}
		to := filepath.Join(tmp, f)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, text, 0o600)); err != nil {
			return "", nil, err
		}
		replace[filepath.Join(root, f)] = to
	}
	git := exec.Command("git", "apply", "-")
	git.Dir, git.Stdin = tmp, strings.NewReader(m.patch)
	git.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(tmp))
	if text, err := git.CombinedOutput(); err != nil {
		return "", nil, errors.New(strings.TrimSpace(string(text)))
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	overlay = filepath.Join(tmp, "overlay.json")
	return overlay, func() { os.RemoveAll(tmp) }, os.WriteFile(overlay, text, 0o600)
}

// testExists says whether the package has the test, and make test runs it.
func (m mutant) testExists() (bool, error) {
	names, err := filepath.Glob(filepath.Join(m.pkg, "*_test.go"))
	if err != nil {
		return false, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return false, err
		}
		if _, body, ok := strings.Cut(string(text), "\nfunc "+m.test+"("); ok {
			body, _, _ = strings.Cut(body, "\n}\n")
			return !strings.Contains(body, "\tonlyLong(t)\n"), nil
		}
	}
	return false, nil
}

// changes returns the packages that the edit changes.
func (m mutant) changes() (pkgs []string) {
	for _, f := range m.files {
		pkgs = append(pkgs, "./"+path.Dir(f))
	}
	return pkgs
}

// results counts what became of the edits that were tried.
type results struct {
	start time.Time

	mu                       sync.Mutex
	tried, killed, soon      int
	survived, caughtByOthers []string
}

// try runs the tests with an edit and prints what became of it.
func (r *results) try(m mutant, opts options) error {
	overlay, remove, err := m.apply()
	if err != nil {
		return err
	}
	defer remove()
	o, err := test(overlay, opts.limit, m.pkg, m.test)
	if err != nil {
		return err
	}
	if o.failed {
		r.add("killed", m, o)
		return nil
	}
	o.print("PASSED", m)
	var pkgs []string
	if !opts.named {
		pkgs = append(m.changes(), m.pkg)
	}
	slices.Sort(pkgs)
	for _, pkg := range slices.Compact(pkgs) {
		o, err := test(overlay, opts.limit, pkg, "")
		if err != nil {
			return err
		}
		if o.failed {
			r.add("KILLED BY ANOTHER", m, o)
			return nil
		}
	}
	r.add("SURVIVED", m, o)
	return nil
}

// add counts and prints what became of an edit.
func (r *results) add(what string, m mutant, o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried++
	switch what {
	case "killed":
		r.killed++
		if o.tests < quick && slices.Contains(m.changes(), m.pkg) {
			r.soon++
		}
	case "SURVIVED":
		r.survived = append(r.survived, m.name)
	default:
		r.caughtByOthers = append(r.caughtByOthers, m.name)
	}
	o.print(what, m)
}

func (r *results) end() error {
	fmt.Printf("%d of %d killed by the test that they name, %d by one of the package that they change in under %v, in %v\n",
		r.killed, r.tried, r.soon, quick, time.Since(r.start).Round(time.Second))
	if r.killed == r.tried {
		return nil
	}
	return fmt.Errorf("survived: %v; killed by another test than the one named: %v", r.survived, r.caughtByOthers)
}

func table(mutants []mutant) string {
	var b strings.Builder
	b.WriteString(heading)
	for _, m := range mutants {
		fmt.Fprintf(&b, "| %s | %s | `%s` of %s |\n", m.name, m.promise, m.test, strings.TrimPrefix(m.pkg, "./"))
	}
	return b.String()
}

// renewPage returns the page as it is, and with the table of these edits.
func renewPage(mutants []mutant) (is, must string, err error) {
	raw, err := os.ReadFile(page)
	if err != nil {
		return "", "", err
	}
	is = string(raw)
	before, after, found := strings.Cut(is, heading)
	if !found {
		return "", "", fmt.Errorf("%s has no table that begins with %q", page, heading)
	}
	for strings.HasPrefix(after, "|") {
		_, after, _ = strings.Cut(after, "\n")
	}
	return is, before + table(mutants) + after, nil
}

func writeTable(mutants []mutant) error {
	_, must, err := renewPage(mutants)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(must), 0o644)
}

func checkTable(mutants []mutant) error {
	for _, m := range mutants {
		if ok, err := m.testExists(); err != nil || !ok {
			return errors.Join(err, fmt.Errorf("%s: make test runs no %s of %s", m.name, m.test, m.pkg))
		}
	}
	is, must, err := renewPage(mutants)
	if err == nil && is != must {
		err = fmt.Errorf("the table of %s is not current: go run ./%s -table", page, dir)
	}
	return err
}
