package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
