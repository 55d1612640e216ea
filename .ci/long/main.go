// long prints arguments of go test: -run with the names of the tests that MILLRACE_TEST_LONG
// changes, and their packages. Those are the tests that read the variable, or name a function of
// their package's tests that does, or names one that does, and so on.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const variable = `"MILLRACE_TEST_LONG"`

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "long:", err)
		os.Exit(1)
	}
}

func run() error {
	named := map[string]map[string][]string{} // what each function of the tests in a directory names
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != "." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata"):
			return fs.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		dir := "./" + filepath.ToSlash(filepath.Dir(path))
		if named[dir] == nil {
			named[dir] = map[string][]string{}
		}
		return addFunctions(named[dir], path)
	})
	if err != nil {
		return err
	}
	tests, dirs := map[string]bool{}, []string{}
	for _, dir := range slices.Sorted(maps.Keys(named)) {
		names := long(named[dir])
		for _, name := range names {
			tests[name] = true
		}
		if len(names) > 0 {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return fmt.Errorf("no test reads %s", variable)
	}
	fmt.Printf("-run ^(%s)$ %s\n", strings.Join(slices.Sorted(maps.Keys(tests)), "|"), strings.Join(dirs, " "))
	return nil
}

// addFunctions adds the functions and methods of a file, with the names and strings in each.
func addFunctions(named map[string][]string, path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				named[f.Name.Name] = append(named[f.Name.Name], n.Name)
			case *ast.BasicLit:
				named[f.Name.Name] = append(named[f.Name.Name], n.Value)
			}
			return true
		})
	}
	return nil
}

// long returns the tests among the functions of one directory that reach the variable.
func long(named map[string][]string) (tests []string) {
	reach := map[string]bool{variable: true}
	for before := 0; before < len(reach); {
		before = len(reach)
		for f, names := range named {
			if slices.ContainsFunc(names, func(name string) bool { return reach[name] }) {
				reach[f] = true
			}
		}
	}
	for f := range reach {
		if strings.HasPrefix(f, "Test") {
			tests = append(tests, f)
		}
	}
	return tests
}
