package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every promise in docs/testing.md names a test, and each test that it names exists.
func TestPromisesNameRealTests(t *testing.T) {
	exists := make(map[string]bool)
	declared := regexp.MustCompile(`^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)
	sourceLines(t, []string{"_test.go"}, func(_ string, _ int, text string) {
		if m := declared.FindStringSubmatch(text); m != nil {
			exists[m[1]] = true
		}
	})
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")
	promises, rows := true, 0
	for i, line := range strings.Split(string(doc), "\n") {
		if strings.HasPrefix(line, "## The soak") {
			promises = false
		}
		tests := named.FindAllStringSubmatch(line, -1)
		for _, m := range tests {
			if !exists[m[1]] {
				t.Errorf("line %d: there is no %s", i+1, m[1])
			}
		}
		if promises && strings.HasPrefix(line, "- ") {
			if rows++; len(tests) == 0 {
				t.Errorf("line %d names no test: %s", i+1, line)
			}
		}
	}
	if rows < 15 {
		t.Errorf("only %d promises", rows)
	}
}

// TestDocsMutants: the list of wrong edits is that of the patches, and the tests it names exist.
func TestDocsMutants(t *testing.T) {
	check := exec.Command("go", "run", "./.ci/mutants", "-check")
	check.Dir = filepath.Join("..", "..")
	if text, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestLongTests: make test-long runs each test that reads MILLRACE_TEST_LONG, also by a function of
// another file, and not the others.
func TestLongTests(t *testing.T) {
	list := exec.Command("go", "run", "./.ci/long")
	list.Dir = filepath.Join("..", "..")
	out, err := list.CombinedOutput()
	said := strings.Fields(string(out))
	if err != nil || len(said) < 3 || said[0] != "-run" {
		t.Fatalf("%v\n%s", err, out)
	}
	runs, packages := regexp.MustCompile(said[1]), said[2:]
	function := regexp.MustCompile(`^func (?:\([^)]*\) )?(\w+)\(`)
	reads := regexp.MustCompile(`\blong\(\)|Getenv\("MILLRACE_TEST_LONG"\)`)
	within, found := "", 0
	sourceLines(t, []string{"_test.go"}, func(name string, _ int, text string) {
		if m := function.FindStringSubmatch(text); m != nil {
			within = m[1]
		}
		if !strings.HasPrefix(within, "Test") || !reads.MatchString(text) {
			return
		}
		found++
		if dir := filepath.Dir(name); !runs.MatchString(within) || !slices.ContainsFunc(packages, func(p string) bool { return strings.HasSuffix(dir, p[1:]) }) {
			t.Errorf("%s of %s is not run: %s", within, dir, out)
		}
	})
	for _, name := range []string{"TestPowerLoss", "TestMemoryLinks", "TestOthersClients"} { // by another function
		if !runs.MatchString(name) {
			t.Errorf("%s is not run: %s", name, out)
		}
	}
	for _, name := range []string{"TestSoak", "TestGolden", "TestDocsFlags"} {
		if runs.MatchString(name) {
			t.Errorf("%s is run: %s", name, out)
		}
	}
	if found < 15 {
		t.Errorf("only %d tests", found)
	}
}
