// Command builtin makes the dictionary that package dict has built in, and measures it:
//
//	go run ./dict/builtin -corpus ../shared/corpus -out dict/data/51001.zdict
//	go run ./dict/builtin -corpus ../shared/corpus -table -records -streams
//
// It needs cgo and the corpus of real data. The same corpus makes the same dictionary. What it does
// is described in docs/dictionaries.md.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"millrace/dict"
)

// The dictionary, as measured to be best.
const (
	vocabularyBytes = 4 << 10
	trainEvents     = 20_000
	heldOutEvents   = 5_000
)

// Seeds of the two compositions; the time that composed events are spread over.
const (
	trainSeed, heldOutSeed = 1, 2
	spreadYears            = 1
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
	events := flags.String("events", "", "write the composed events to train.ndjson and held.ndjson in this `directory`")
	table := flags.Bool("table", false, "measure dictionaries and encoders on held-out events")
	records := flags.Bool("records", false, "measure on all real records of authors that were held out")
	streams := flags.Bool("streams", false, "measure a streaming context per subscriber instead of a dictionary")
	if err := flags.Parse(args); err != nil {
		return err
	}
	m, err := compose(*corpusDir)
	if err != nil {
		return err
	}
	d, phrases, err := m.dictionary(vocabularyBytes)
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
	if *events != "" {
		if err := m.write(*events); err != nil {
			return err
		}
	}
	if *table {
		if err := m.table(stdout, d); err != nil {
			return err
		}
	}
	if *records {
		if err := m.records(stdout, d); err != nil {
			return err
		}
	}
	if *streams {
		return m.streams(stdout)
	}
	return nil
}

// material is what the corpus gives: both sides of the split by author, and events of each.
type material struct {
	dir                     string
	train, held             *source
	trainEvents, heldEvents [][]byte
	realEvents              [][]byte // those that production Jetstream served
}

func compose(dir string) (*material, error) {
	train, held, err := load(dir)
	if err != nil {
		return nil, fmt.Errorf("load corpus: %w", err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "expected.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("load corpus: %w", err)
	}
	from := time.Date(2026, time.July, 1, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(spreadYears, 0, 0)
	return &material{
		dir: dir, train: train, held: held,
		trainEvents: newComposer(train, trainSeed, from, to).events(nil, trainEvents),
		heldEvents:  newComposer(held, heldOutSeed, from, to).events(nil, heldOutEvents),
		realEvents:  bytes.Split(bytes.TrimSpace(raw), []byte{'\n'}),
	}, nil
}

// dictionary makes the dictionary: vocabulary, templates, and tables that suit the composed events.
func (m *material) dictionary(vocabularyBytes int) (*dict.Dictionary, []string, error) {
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

// write saves the composed events, for other tools to train and measure with.
func (m *material) write(dir string) error {
	for name, events := range map[string][][]byte{"train.ndjson": m.trainEvents, "held.ndjson": m.heldEvents} {
		lines := append(bytes.Join(events, []byte{'\n'}), '\n')
		if err := os.WriteFile(filepath.Join(dir, name), lines, 0o644); err != nil {
			return err
		}
	}
	return nil
}
