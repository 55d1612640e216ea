package main

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// retiredWords are terms that docs/glossary.md has replaced by the field's own.
var retiredWords = regexp.MustCompile(`(?i)\b(crowd|strand|outline|needles?\b|scout|parked|glance|glimpse|purse|footing|loner)` +
	`|\b(arenas?|loan|loaned|lent|lates|climbs|suspicion|so manieth|kicks?|nudged?|lanes?|chill|heirs?)\b` +
	`|signs? of life|small hours|fell[ _]?off|falls_?off|is_?told`)

// sourceLines calls fn with each line of the module's files that end in one of suffixes.
func sourceLines(t *testing.T, suffixes []string, fn func(path string, line int, text string)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "data" || name == "node_modules") {
			return filepath.SkipDir
		}
		has := func(suffix string) bool { return strings.HasSuffix(path, suffix) }
		for _, suffix := range suffixes {
			if d.IsDir() || !has(suffix) {
				continue
			}
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			scanner := bufio.NewScanner(file)
			scanner.Buffer(nil, 1<<20)
			for line := 1; scanner.Scan(); line++ {
				fn(path, line, scanner.Text())
			}
			return scanner.Err()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDocsWords: code and documents use the terms of docs/glossary.md. The changelog names what was
// renamed.
func TestDocsWords(t *testing.T) {
	files := make(map[string]bool)
	sourceLines(t, []string{".go", ".md", ".yaml", ".html"}, func(path string, line int, text string) {
		files[path] = true
		if base := filepath.Base(path); base == "CHANGELOG.md" || base == "docs_words_test.go" {
			return
		}
		if word := retiredWords.FindString(text); word != "" {
			t.Errorf("%s:%d: %q is no term of docs/glossary.md", path, line, word)
		}
	})
	if len(files) < 200 {
		t.Errorf("only %d files were read", len(files))
	}
}

// TestCommentColumns: a line of a comment ends by column 100, a tab being four.
func TestCommentColumns(t *testing.T) {
	sourceLines(t, []string{".go"}, func(path string, line int, text string) {
		text = strings.ReplaceAll(text, "\t", "    ")
		if n := utf8.RuneCountInString(text); n > 100 && strings.HasPrefix(strings.TrimSpace(text), "//") {
			t.Errorf("%s:%d: the comment ends at column %d", path, line, n)
		}
	})
}

// maxDocsWords is how many words docs may have, so that a newcomer reads them in one evening.
const maxDocsWords = 14_000

// TestDocsLength counts the words as wc does. Who writes more shortens elsewhere.
func TestDocsLength(t *testing.T) {
	words := 0
	for _, d := range readDocs(t) {
		if strings.HasPrefix(d.name, "docs/") && filepath.Ext(d.name) == ".md" {
			words += len(strings.Fields(d.text))
		}
	}
	if words > maxDocsWords {
		t.Errorf("docs have %d words, %d are allowed: shorten what says a thing twice, wherever it is", words, maxDocsWords)
	}
}
