package identity

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/klauspost/compress/zstd"

	"millrace/consume/relaysim"
	"millrace/consume/relaysim/testwait"
)

// operations returns lines of an export that has accounts 0 to 9, of which some have changed.
func operations(t *testing.T) []byte {
	t.Helper()
	plc := &relaysim.PLC{}
	var b bytes.Buffer
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	export := func(n int) { t.Helper(); must(plc.Export(&b, didOf(n))) }
	plc.SetKeyOf(didOf(1), didOf(100))
	for n := range 5 {
		export(n)
	}
	plc.SetKeyOf(didOf(1), didOf(101))
	export(1)
	plc.SetKeyOf(didOf(2), didOf(102))
	before := b.Len()
	export(2)
	lost := strings.Replace(b.String()[before:], `"nullified":false`, `"nullified":true`, 1)
	b.Truncate(before)
	b.WriteString(lost)
	fmt.Fprintf(&b, `{"did":%q,"operation":{"type":"plc_tombstone"},"nullified":false}`+"\n", didOf(3))
	fmt.Fprintf(&b, `{"did":%q,"operation":{"type":"create","signingKey":%q},"nullified":false}`+"\n", didOf(5), keyOf(t, didOf(5)).DIDKey())
	fmt.Fprintf(&b, `{"did":%q,"operation":{"type":"plc_operation","verificationMethods":{"atproto":"did:key:zzz"}}}`+"\n", didOf(6))
	b.WriteString("no line\n\n{}\n" + `{"did":"did:web:example.com","operation":{"type":"create"}}`)
	return b.Bytes()
}

// writeExport writes a file, with a time that follows from its number.
func writeExport(t *testing.T, path string, content []byte, number int) {
	t.Helper()
	err := os.WriteFile(path, content, 0o600)
	stamp := time.Unix(1_700_000_000+int64(number), 0)
	if err := errors.Join(err, os.Chtimes(path, stamp, stamp)); err != nil {
		t.Fatal(err)
	}
}

// exportStates returns what a directory with the export knows of accounts 0 to 7: DIDs of keys, or
// states.
func exportStates(t *testing.T, fs vfs.FS, path string) string {
	t.Helper()
	finished := make(chan string, 1)
	d, err := Open(Config{FS: fs, Dir: "ids", Export: path, Bytes: minBytes, hooks: testHooks{finished: func(did string) { finished <- did }}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var out []string
	for n := range 8 {
		key, state := d.Key(uint64(n), didOf(n))
		if state == Unknown {
			<-finished
			key, state = d.Key(uint64(n), didOf(n))
		}
		text := state.String()
		for _, signer := range []int{n, 100, 101, 102} {
			if key != nil && key.Equal(keyOf(t, didOf(signer))) {
				text = fmt.Sprint(signer)
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

const exported = "0 101 2 absent 4 5 absent unknown"

// TestExport: the last operation of each account counts, whatever the file is compressed with. Of
// an account that it lacks it says nothing.
func TestExport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "export")
	plain := operations(t)
	var gz, zst bytes.Buffer
	g := gzip.NewWriter(&gz)
	z, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Write(plain)
	if _, err2 := z.Write(plain); errors.Join(err, err2, g.Close(), z.Close()) != nil {
		t.Fatal(err, err2)
	}
	for i, content := range [][]byte{plain, gz.Bytes(), zst.Bytes()} {
		writeExport(t, path, content, 0)
		if got := exportStates(t, vfs.NewMem(), path); got != exported {
			t.Errorf("%d: got %s", i, got)
		}
	}
}

// TestExportOnce: a file is read once; another one makes all that was known go.
func TestExportOnce(t *testing.T) {
	fs, path := vfs.NewMem(), filepath.Join(t.TempDir(), "export")
	writeExport(t, path, operations(t), 0)
	if got := exportStates(t, fs, path); got != exported {
		t.Errorf("got %s", got)
	}
	other := bytes.ReplaceAll(operations(t), []byte(didOf(4)), []byte(didOf(7)))
	writeExport(t, path, other, 0) // of the same size and time
	if got := exportStates(t, fs, path); got != exported {
		t.Errorf("the same file: got %s", got)
	}
	writeExport(t, path, other, 1)
	if got := exportStates(t, fs, path); got != "0 101 2 absent unknown 5 absent current" {
		t.Errorf("another file: got %s", got)
	}
}

// TestExportInterrupted: what was not read to its end is read again.
func TestExportInterrupted(t *testing.T) {
	fs, path := vfs.NewMem(), filepath.Join(t.TempDir(), "export")
	content := bytes.Repeat(operations(t), 500)
	writeExport(t, path, content, 0)
	cfg := Config{FS: fs, Dir: "ids", Export: path, Bytes: minBytes}.withDefaults()
	e, err := openExport(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(&cfg, e.source)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.load(ctx, s, e.source, cfg.Logger); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	if got := exportStates(t, fs, path); got != exported {
		t.Errorf("got %s", got)
	}
}

// TestBrokenExport: without a whole file no key is known, and a metric says so.
func TestBrokenExport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "export")
	writeExport(t, path, []byte("\x1f\x8b\x08cut"), 0)
	d, err := Open(Config{FS: vfs.NewMem(), Dir: "ids", Export: path})
	if err != nil {
		t.Fatal(err)
	}
	testwait.Eventually(t, time.Minute, "the directory fails", d.fetcher.paused)
	if _, state := d.Key(1, didOf(1)); state != Unknown {
		t.Errorf("a key is %v", state)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestNoExport: files that are none.
func TestNoExport(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none")} {
		if _, err := Open(Config{FS: vfs.NewMem(), Dir: "ids", Export: path}); err == nil {
			t.Errorf("%s is an export", path)
		}
	}
	path := filepath.Join(dir, "export")
	for i, content := range []string{"", "{}\n{}", "\x1f\x8b\x08cut", "\x28\xb5\x2f\xfdcut", strings.Repeat("x", maxLineBytes+1)} {
		writeExport(t, path, []byte(content), i)
		cfg := Config{FS: vfs.NewMem(), Dir: "ids", Export: path}.withDefaults()
		e, err := openExport(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := openStore(&cfg, e.source)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.load(t.Context(), s, e.source, cfg.Logger); err == nil {
			t.Errorf("%.10q is an export", content)
		}
		if has, err := s.hasSource(); has || err != nil {
			t.Errorf("%.10q: noted as read: %v", content, err)
		}
		if err := s.db.Close(); err != nil {
			t.Error(err)
		}
	}
}
