package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"millrace/dict"
	"millrace/public/client"
)

const (
	dictHeldOutPercent = 20              // of the authors, kept from training to report on
	dictTimedFor       = time.Second / 2 // per row of the report
	// bytes of a line; the largest event is a 1 MiB record with every byte escaped
	maxDictEvent  = 8 << 20
	maxDictWindow = 128 << 20 // what the zstd command's strongest levels need
)

func dictCommand() *command {
	return &command{
		name: "millrace dict", summary: "train a zstd dictionary, or print what one is",
		subs: []*command{
			dictTrainCommand(),
			{name: "millrace dict inspect", args: "FILE…", summary: "print what dictionaries are", flags: newFlags("dict inspect"), run: runDictInspect},
		},
	}
}

func dictTrainCommand() *command {
	c, fs := &dictTrainConfig{size: dict.DefaultTrainBytes}, newFlags("dict train")
	c.register(fs)
	return &command{
		name: "millrace dict train", args: "[FILE…]", summary: "make a zstd dictionary of events",
		about: `  millrace dict train FILE…           of JSON events, one a line, also zstd-compressed; - is stdin
  millrace dict train --url URL       of a running server's events
  millrace dict train --data-dir DIR  of what a stopped server has in its log, which is only read

A trained dictionary has pieces of the events in it, also of what people wrote, and a server hands its
dictionaries to anybody. Do not train with events that are not public.`,
		flags: fs,
		groups: []flagGroup{
			{"Where the events come from", []string{"url", "data-dir", "cursor", "samples"}},
			{"What is made", []string{"out", "size", "id", "compare"}},
		},
		check: c.check, run: c.run,
	}
}

// dictTrainConfig is what the flags of `millrace dict train` set.
type dictTrainConfig struct {
	url     string
	dataDir string
	cursor  string
	samples int
	size    byteSize
	id      uint64
	out     string
	compare list
}

func (c *dictTrainConfig) register(fs *flag.FlagSet) {
	fs.StringVar(&c.url, "url", "", "take the events of the server at this `URL` instead of files'")
	fs.StringVar(&c.dataDir, "data-dir", "", "take the events in the log of the server whose --data-dir is this `DIR`; it must not be running")
	fs.StringVar(&c.cursor, "cursor", "", "with --url or --data-dir, start at this `cursor`; 0: the oldest event; left out: with --url live,\nwith --data-dir the oldest event")
	fs.IntVar(&c.samples, "samples", 50_000, "learn from at most this `number` of events; of more in files or a log, evenly picked ones")
	fs.Var(&c.size, "size", "`size` of the dictionary file")
	fs.Uint64Var(&c.id, "id", 0, "ID of the dictionary, a `number` from 32768 to 2147483647; up to 65535 it takes two bytes of each\nevent, above four; 0: one of the former, derived from the contents")
	fs.StringVar(&c.out, "out", "", "write the dictionary to this `file`, which must not exist; left out: <ID>.zdict")
	fs.Var(&c.compare, "compare", "report on this dictionary `file` too (may be repeated)")
}

func (c *dictTrainConfig) check(files []string) error {
	sources := 0
	for _, given := range []bool{c.url != "", c.dataDir != "", len(files) > 0} {
		if given {
			sources++
		}
	}
	switch {
	case sources == 0:
		return errors.New("millrace dict train needs events: name files, - for stdin, a server with --url, or its directory with --data-dir")
	case sources > 1:
		return errors.New("millrace dict train takes events from files, from --url, or from --data-dir, not from several")
	case c.cursor != "" && len(files) > 0:
		return errors.New("--cursor goes with --url and --data-dir")
	case c.out == "-":
		return errors.New("--out - : name a file; the report goes to standard output")
	case c.samples < 1:
		return fmt.Errorf("--samples %d: at least 1 is needed, some thousands are sensible", c.samples)
	case c.id != 0 && (c.id < dict.MinPrivateID || c.id > dict.MaxPrivateID):
		return fmt.Errorf("--id %d is outside of %d to %d, the IDs that zstd leaves to private use", c.id, dict.MinPrivateID, dict.MaxPrivateID)
	case dict.ReservedID(uint32(c.id)):
		return fmt.Errorf("--id %d is kept for dictionaries that millrace ships: choose another, or leave it out", c.id)
	case c.size < dict.MinTrainBytes || c.size > dict.MaxBytes:
		return fmt.Errorf("--size %s is not %s to %s", c.size, byteSize(dict.MinTrainBytes), byteSize(dict.MaxBytes))
	}
	if c.cursor != "" {
		if _, err := parseCursor(c.cursor); err != nil {
			return err
		}
	}
	if c.url != "" {
		if _, err := client.SubscribeURL(c.url); err != nil {
			return fmt.Errorf("--url: %w", err)
		}
	}
	return nil
}

func (c *dictTrainConfig) run(ctx context.Context, files []string, stdout, stderr io.Writer) error {
	if c.out == "" && c.id != 0 {
		c.out = dictFile(uint32(c.id))
	}
	if c.out != "" {
		if _, err := os.Lstat(c.out); err == nil { // before minutes of work
			return errDictExists(c.out)
		}
		if _, err := os.Stat(filepath.Dir(c.out)); err != nil {
			return fmt.Errorf("write dictionary: %w", err)
		}
	}
	compared, err := loadDictionaries(c.compare)
	if err != nil {
		return err
	}
	events, err := c.events(ctx, files, stderr)
	if err != nil {
		return err
	}
	train, held := dict.SplitByAuthor(events, dictHeldOutPercent, "")
	fmt.Fprintf(stderr, "%d events: %d to train with, %d by other authors to report on\n", len(events), len(train), len(held))
	d, err := dict.Train(ctx, dict.TrainConfig{
		Events: train, MaxBytes: int(c.size), ID: uint32(c.id),
		Progress: func(s dict.TrainStep) {
			fmt.Fprintf(stderr, "%2d of %d: %s: ", s.Step, s.Steps, s.Setting)
			if s.Err != nil {
				fmt.Fprintln(stderr, s.Err)
				return
			}
			fmt.Fprintf(stderr, "%d bytes, ratio %.4f\n", s.Bytes, s.Ratio)
		},
	})
	if err != nil {
		return err
	}
	c.out = cmp.Or(c.out, dictFile(d.ID()))
	if err := writeNewFile(c.out, d.Bytes()); err != nil {
		return err
	}
	return reportDictionary(stdout, c.out, d, compared, held)
}

// dictFile names the file of a dictionary.
func dictFile(id uint32) string { return strconv.Itoa(int(id)) + ".zdict" }

// namedDictionary is a row of the report.
type namedDictionary struct {
	name string
	d    *dict.Dictionary // nil: none
}

func loadDictionaries(paths []string) ([]namedDictionary, error) {
	var ds []namedDictionary
	for _, path := range paths {
		d, err := readDictionary("read dictionary", path)
		if err != nil {
			return nil, err
		}
		ds = append(ds, namedDictionary{path, d})
	}
	return ds, nil
}

// readDictionary reads a dictionary's file. Errors begin with what it is for.
func readDictionary(what, path string) (*dict.Dictionary, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, dict.MaxBytes+1)) // of a larger one Parse refuses that
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	d, err := dict.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", what, path, err)
	}
	return d, nil
}

func errDictExists(path string) error {
	return fmt.Errorf("write dictionary: %s exists already: servers and clients may rely on it; choose another name with --out", path)
}

// writeNewFile writes a file that does not exist yet, whole or not at all.
func writeNewFile(path string, data []byte) error {
	if _, err := os.Lstat(path); err == nil {
		return errDictExists(path)
	}
	if err := replaceFile(path, 0o644, func(w io.Writer) error { _, err := w.Write(data); return err }); err != nil {
		return fmt.Errorf("write dictionary: %w", err)
	}
	return nil
}

// reportDictionary prints what the new dictionary is worth beside others.
func reportDictionary(w io.Writer, path string, d *dict.Dictionary, compared []namedDictionary, held [][]byte) error {
	if len(held) == 0 {
		fmt.Fprintf(w, "%s: dictionary %d, %d bytes; too few authors to report on\n", path, d.ID(), len(d.Bytes()))
		return nil
	}
	fmt.Fprintf(w, "Each of %d events that no training saw, compressed alone:\n\n", len(held))
	rows := append([]namedDictionary{{"no dictionary", nil}, {"built-in", dict.BuiltIn()}, {"Jetstream's", jetstreamDictionary()}}, compared...)
	rows = append(rows, namedDictionary{path, d})
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "ID\tbytes\tratio\tµs an event\t\n")
	for _, row := range rows {
		e, err := dict.NewEncoder(row.d)
		if err != nil {
			return err
		}
		ratio, perEvent := dict.Measure(e, held, dictTimedFor)
		e.Close()
		id, size := "–", "–"
		if row.d != nil {
			id, size = strconv.Itoa(int(row.d.ID())), strconv.Itoa(len(row.d.Bytes()))
		}
		fmt.Fprintf(table, "%s\t%s\t%.3f\t%.1f\t  %s\n", id, size, ratio, float64(perEvent.Nanoseconds())/1000, row.name)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nTo use it: millrace serve --zstd-dictionary %s\n", path)
	return nil
}

// runDictInspect prints what dictionary files are.
func runDictInspect(_ context.Context, files []string, stdout, _ io.Writer) error {
	ds, err := loadDictionaries(files)
	if err != nil {
		return err
	}
	shipped := append(dict.Shipped(), jetstreamDictionary())
	for i, nd := range ds {
		if i > 0 {
			fmt.Fprintln(stdout)
		}
		d := nd.d
		fmt.Fprintf(stdout, "file      %s\nID        %d (%s)\nbytes     %d: %d of header and tables, %d of content\nSHA-256   %x\n",
			nd.name, d.ID(), describeID(d, shipped), len(d.Bytes()), len(d.Bytes())-len(d.Content()), len(d.Content()), d.SHA256())
	}
	return nil
}

// describeID says what an ID means for frames, and whether the dictionary is one of shipped.
func describeID(d *dict.Dictionary, shipped []*dict.Dictionary) string {
	width := 4
	switch {
	case d.ID() < 1<<8:
		width = 1
	case d.ID() < 1<<16:
		width = 2
	}
	text := fmt.Sprintf("%d bytes of each frame", width)
	if d.ID() < dict.MinPrivateID || d.ID() > dict.MaxPrivateID {
		text += "; zstd reserves it for a public registry"
	}
	for _, s := range shipped {
		if s.SHA256() == d.SHA256() {
			return text + "; shipped with millrace"
		}
		if s.ID() == d.ID() {
			return text + "; another dictionary with this ID is shipped with millrace, so it cannot be served"
		}
	}
	return text
}
