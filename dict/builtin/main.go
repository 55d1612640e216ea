// Command builtin makes the dictionary that package dict has built in:
//
//	go run ./dict/builtin -corpus ../shared/corpus -out dict/data/51001.zdict
//
// It needs cgo and the corpus of real data. The same corpus makes the same dictionary. What it does
// is described in docs/dictionaries.md. TestReach measures the dictionary.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"millrace/dict"
)

// Parameters of the dictionary; these measured best.
const (
	vocabularyBytes = 4 << 10
	trainEvents     = 20_000
	trainSeed       = 1
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "builtin:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("builtin", flag.ContinueOnError)
	corpusDir := flags.String("corpus", "../shared/corpus", "directory of the corpus")
	out := flags.String("out", "", "write the dictionary to this `file`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	m, err := compose(*corpusDir)
	if err != nil {
		return err
	}
	d, phrases, err := m.dictionary()
	if err != nil {
		return err
	}
	sum := d.SHA256()
	fmt.Fprintf(stdout, "dictionary %d: %d bytes, %d of content, %d phrases, SHA-256 %x\n", d.ID(), len(d.Bytes()), len(d.Content()), len(phrases), sum)
	if text := wholePost(d, m.train.posts, m.held.posts); text != "" {
		return fmt.Errorf("the dictionary has a whole post in it: %q", text)
	}
	if *out != "" {
		if err := os.WriteFile(*out, d.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// material is what the corpus gives: both sides of the split by author, and events of one.
type material struct {
	train, held *corpus
	trainEvents [][]byte
}

func compose(dir string) (*material, error) {
	train, held, err := load(dir)
	if err != nil {
		return nil, fmt.Errorf("load corpus: %w", err)
	}
	return &material{train: train, held: held, trainEvents: newComposer(train, trainSeed).events(trainEvents)}, nil
}

// dictionary makes the dictionary: vocabulary, templates, and tables that suit the composed events.
func (m *material) dictionary() (*dict.Dictionary, []string, error) {
	phrases := vocabulary(m.train.posts, vocabularyBytes)
	content := strings.Join(phrases, "") + templates()
	d, err := dict.FinishContent([]byte(content), m.trainEvents, dict.BuiltInID)
	return d, phrases, err
}

// minPostBytes is the length from which on a text is somebody's post rather than a common saying.
const minPostBytes = 20

// wholePost returns a text of a post that occurs whole in d's content, "" if there is none.
func wholePost(d *dict.Dictionary, sides ...[]post) string {
	for _, posts := range sides {
		for _, p := range posts {
			if len(p.text) >= minPostBytes && bytes.Contains(d.Content(), []byte(p.text)) {
				return p.text
			}
		}
	}
	return ""
}
