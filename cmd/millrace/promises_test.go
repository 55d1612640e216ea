package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every row of docs/testing.md's first table names a test, and each test it names is in the file it
// says.
func TestPromisesNameRealTests(t *testing.T) {
	root := filepath.Join("..", "..")
	doc, err := os.ReadFile(filepath.Join(root, "docs", "testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	promises, rest, _ := strings.Cut(string(doc), "\n## The soak")
	named := regexp.MustCompile("`([A-Za-z0-9_/]+_test\\.go|(?:Test|Fuzz)[A-Za-z0-9]+)`")
	rows, sources := 0, map[string]string{}
	for i, line := range strings.Split(promises, "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| promise") {
			continue
		}
		rows++
		file, tests := "", 0
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			name := m[1]
			if strings.HasSuffix(name, ".go") {
				file = name
				if _, ok := sources[file]; !ok {
					src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
					if err != nil {
						t.Errorf("line %d: %v", i+1, err)
					}
					sources[file] = string(src)
				}
				continue
			}
			tests++
			if !strings.Contains(sources[file], "\nfunc "+name+"(") {
				t.Errorf("line %d: there is no %s in %q", i+1, name, file)
			}
		}
		if tests == 0 {
			t.Errorf("line %d names no test: %s", i+1, line)
		}
	}
	if rows < 15 {
		t.Errorf("only %d rows", rows)
	}
	// Further down tests are named without their files, which are among those above.
	// TestDocsMutants looks at the table of wrong edits.
	before, after, _ := strings.Cut(rest, "\n## Tests that can fail")
	_, after, _ = strings.Cut(after, "\n## ")
	rest = before + after
	for _, m := range named.FindAllStringSubmatch(rest, -1) {
		found := false
		for _, src := range sources {
			found = found || strings.Contains(src, "\nfunc "+m[1]+"(")
		}
		if !found {
			t.Errorf("there is no %s in any of the files named", m[1])
		}
	}
}

// TestDocsMutants: the table of wrong edits is that of the patches, and the tests it names exist.
func TestDocsMutants(t *testing.T) {
	check := exec.Command("go", "run", "./.ci/mutants", "-check")
	check.Dir = filepath.Join("..", "..")
	if text, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}
