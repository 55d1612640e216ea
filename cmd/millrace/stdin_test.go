package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// TestSilentStandardInput: a command that reads standard input, or another pipe, ends with its
// context, although nothing comes. Other tests read none, so that it may be another file meanwhile.
func TestSilentStandardInput(t *testing.T) {
	silent, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close() // which ends what reads it
	defer func(was *os.File) { os.Stdin = was }(os.Stdin)
	os.Stdin = silent
	errSignal := errors.New("a signal")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSignal)
	job := &importJob{stderr: io.Discard}
	job.dataDir = t.TempDir()
	if err := job.file(ctx, "-"); !errors.Is(err, errSignal) || job.refused > 0 {
		t.Errorf("references import: %v, %d files are refused", err, job.refused)
	}
	for _, name := range []string{"-", fmt.Sprintf("/dev/fd/%d", silent.Fd())} {
		if err := readFile(ctx, name, func(in io.Reader) error { _, err := io.ReadAll(in); return err }); !errors.Is(err, errSignal) {
			t.Errorf("graph import %s: %v", name, err)
		}
	}
	got, err := io.ReadAll(readUntil(t.Context(), strings.NewReader("text")))
	if err != nil || string(got) != "text" {
		t.Errorf("text is read as %q, %v", got, err)
	}
}

// TestImportOfNoRows: what is wrong with a file is said before a time is asked for, which a
// repository does not need.
func TestImportOfNoRows(t *testing.T) {
	t.Parallel()
	const row = `{"did":"did:web:example.com","collection":"a.b.c","rkey":"1","path":"a","subject":"did:web:example.com"}`
	dir := t.TempDir()
	out, in, err := os.Pipe()
	if err == nil {
		_, err = in.WriteString(row)
	}
	if err = errors.Join(err, in.Close()); err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for name, says := range map[string]string{
		dir:                              "is a directory",
		writeFile(t, dir+"/empty", ""):   "the file is empty",
		writeFile(t, dir+"/html", "<p>"): "neither a CAR file",
		writeFile(t, dir+"/error", `{"error":"RepoNotFound"}`): "line 1: ",
		writeFile(t, dir+"/rows", row):                         "give --as-of TIME",
		fmt.Sprintf("/dev/fd/%d", out.Fd()):                    "give --as-of TIME", // a pipe
	} {
		var said strings.Builder
		job := &importJob{stderr: &said}
		job.dataDir = dir
		if err := job.file(t.Context(), name); err != nil || job.refused != 1 || !strings.Contains(said.String(), says) {
			t.Errorf("%v, want %q: %s", err, says, &said)
		}
	}
}
