package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestGoroutinesAreWaitedFor: outside of tests a goroutine is started by an errgroup or by
// sync.WaitGroup.Go, so that what started it can wait for it.
func TestGoroutinesAreWaitedFor(t *testing.T) {
	excepted := filepath.Join("intern", "kv", "pebbleguard", "db.go") // a call of Pebble may never return
	root, found := filepath.Join("..", ".."), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			statement, ok := n.(*ast.GoStmt)
			switch {
			case ok && strings.HasSuffix(path, excepted):
				found++
			case ok:
				t.Errorf("%v: a bare go statement", files.Position(statement.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found != 1 {
		t.Errorf("%s has %d go statements, want the one that is excepted", excepted, found)
	}
}
