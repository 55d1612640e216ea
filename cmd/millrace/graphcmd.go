package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"millrace/cmd/millrace/refs"
	"millrace/replay/graph"
	"millrace/replay/graph/feed"
)

func graphCommand() *command {
	return &command{
		name: "millrace graph", summary: "import, export and remove edges of the graph, of a server that is not running",
		subs: []*command{graphImportCommand(), graphExportCommand(), graphRemoveCommand()},
	}
}

func graphImportCommand() *command {
	c, fs := &graphImport{memory: 4 << 30}, newFlags("graph import")
	c.register(fs)
	fs.Var(&c.memory, "graph-memory", "memory for all static edges (`SIZE`, from 64MiB up), as of the server")
	return &command{
		name: "millrace graph import", args: "FILE…", summary: "read follows or blocks without records, as static edges",
		about: `A file is CSV with the columns actor and subject, both DIDs; plain, or compressed with gzip or zstd; - is standard
input. Lines are in any order; sorted by actor they are read fastest. What was imported before stays, and repeats
change nothing. If a line is wrong, nothing is imported. The server loads static edges at its next start, as
millrace serve --graph says; no answer that they affect is called complete.`,
		flags: fs, twins: storeTwins(), check: c.check, run: c.with(refsName, c.importFiles),
	}
}

// graphFlags are what the commands that read or write edges have.
type graphFlags struct {
	storeFlags
	kind choice
}

func (p *graphFlags) register(fs *flag.FlagSet) {
	p.storeFlags.register(fs)
	p.kind = choice{"follows", []string{"follows", "blocks"}}
	fs.Var(&p.kind, "kind", "what an edge is: follows or blocks")
}

// source is the number of the kind's source.
func (p *graphFlags) source() int { return slices.Index(p.kind.allowed, p.kind.value) }

// graphImport is what the flags of `millrace graph import` set.
type graphImport struct {
	graphFlags
	memory byteSize
}

func (c *graphImport) check(args []string) error {
	return errors.Join(checkGraphMemory(c.memory), c.graphFlags.check(args))
}

// importBatch is how many edges are sorted together.
const importBatch = 1 << 20

func (c *graphImport) importFiles(ctx context.Context, s *refsStores, files []string, stdout, stderr io.Writer) (err error) {
	defer func() { err = adviseImport(err) }()
	name := c.config().staticFile()
	static, err := graph.OpenStatic(name, graph.Config{Sources: graph.DefaultSources(), StoreID: s.uids.StoreID(), Memory: int64(c.memory)})
	if err != nil {
		return err
	}
	defer static.Close()
	r := &refs.EdgeReader{UIDs: s.uids}
	var batch []graph.Edge
	flush := func() error {
		err := static.Add(c.source(), batch)
		batch = batch[:0]
		return err
	}
	begun := time.Now()
	say := everySoOften(func() {
		n := r.Lines.Load()
		fmt.Fprintf(stderr, "%d lines, %.0f a second\n", n, float64(n)/time.Since(begun).Seconds())
	})
	for _, file := range files {
		err := readFile(ctx, file, func(in io.Reader) error {
			return r.Read(ctx, in, func(edges []graph.Edge) error {
				say()
				if batch = append(batch, edges...); len(batch) < importBatch {
					return nil
				}
				return flush()
			})
		})
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if err := feed.Forget(c.config().graphFile()); err != nil {
		return err
	}
	edges, err := static.Save(ctx, name)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "read %d lines; there are %d static edges now\n", r.Lines.Load(), edges)
	return nil
}

// adviseImport says what a failed import leaves, and what to do if memory is short.
func adviseImport(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%w; nothing was imported", err)
	if errors.Is(err, graph.ErrStaticMemory) {
		return advise(err, "Raise --graph-memory. A server that loads these edges needs as much.")
	}
	return err
}

// readFile lets do read a file, or standard input.
func readFile(ctx context.Context, name string, do func(in io.Reader) error) error {
	in := os.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	r := readUntil(ctx, in)
	defer r.Close()
	return do(r)
}

func graphRemoveCommand() *command {
	p, fs := &storeFlags{}, newFlags("graph remove")
	p.register(fs)
	return &command{
		name: "millrace graph remove", summary: "remove all static edges",
		flags: fs, twins: storeTwins(), check: p.check, run: p.with(refsName, removeStatic),
	}
}

func removeStatic(_ context.Context, s *refsStores, _ []string, stdout, _ io.Writer) error {
	at := s.flags.config()
	if err := feed.Forget(at.graphFile()); err != nil {
		return err
	}
	for _, name := range []string{at.staticFile(), at.staticFile() + ".tmp"} { // also of an import that was killed
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	fmt.Fprintln(stdout, "there are no static edges now")
	return syncDir(at.dataDir)
}

func graphExportCommand() *command {
	c, fs := &graphExport{}, newFlags("graph export")
	c.register(fs)
	fs.BoolVar(&c.static, "static", false, "static edges, and not those of records")
	fs.StringVar(&c.out, "out", "", "write to this `file`, which gets its name when it is whole; left out: standard output")
	return &command{
		name: "millrace graph export", summary: "write follows or blocks as CSV, with the columns actor and subject",
		about: `The edges are those of the records, at the position that standard error says, or with --static those that were
imported. It reads what a server with --graph writes when it ends, unless its memory was too small.`,
		flags:  fs,
		groups: []flagGroup{{"What is written", []string{"kind", "static", "out"}}, {"Where it comes from", storeTwins()}},
		twins:  storeTwins(), check: c.check, run: c.with(refsRead, c.export),
	}
}

// graphExport is what the flags of `millrace graph export` set.
type graphExport struct {
	graphFlags
	static bool
	out    string
}

func (c *graphExport) export(ctx context.Context, s *refsStores, _ []string, stdout, stderr io.Writer) error {
	file := c.config().graphFile()
	if c.static {
		file = c.config().staticFile()
	}
	h, err := graph.Peek(file)
	if errors.Is(err, os.ErrNotExist) {
		return advise(err, "A server with --graph writes graph.snapshot when it ends, and millrace graph import graph.static.")
	}
	if err != nil {
		return err
	}
	// A snapshot names the generation of its table, too.
	if store, _, _ := strings.Cut(h.StoreID, " from "); store != s.uids.StoreID() {
		return fmt.Errorf("%s has UIDs of store %s, and here is store %s: export it where it was made", file, store, s.uids.StoreID())
	}
	x := &refs.EdgeExport{Names: s.uids, Source: c.source(), Static: c.static}
	x.Progress = everySoOften(func() { fmt.Fprintf(stderr, "%d edges\n", x.Edges) })
	err = writeWhole(c.out, stdout, func(w io.Writer) error { return x.Run(ctx, file, w) })
	if err != nil {
		return err
	}
	of := "static edges"
	if !c.static {
		of = fmt.Sprintf("edges, of seq %d of epoch %d", h.Position.Seq, h.Position.Epoch)
	}
	fmt.Fprintf(stderr, "exported %d %s\n", x.Edges, of)
	return nil
}
