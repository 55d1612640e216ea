package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestCommand runs the command: the first line names the address, and it ends when asked to.
func TestCommand(t *testing.T) {
	for _, bad := range [][]string{
		{"--listen", "256.0.0.1:1", "--generate", "10"}, {"--nonsense"}, {"argument"}, {"--rate", "-1"}, {"--clock", "sun"},
		{"--hostile-kinds", "nice", "--generate", "10"}, {"--capture", "no-such-file"},
		{"--faulty-every", "9"}, {"--signed", "--once"},
	} {
		var out strings.Builder
		if code := mainRun(t.Context(), bad, io.Discard, &out); code == 0 || !strings.Contains(out.String(), "relaysim: ") {
			t.Errorf("%q: exit code %d, %q", bad, code, out.String())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- mainRun(ctx, []string{"--listen", "127.0.0.1:0", "--generate", "50", "--log-level", "error"}, out, io.Discard)
	}()
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var port int
	if _, err := fmt.Sscanf(line, "listening ws://127.0.0.1:%d\n", &port); err != nil {
		t.Errorf("first line %q: %v", line, err)
	}
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d after a clean stop", code)
	}
}

// TestHelp: the manual has all flags, and names all malformed messages.
func TestHelp(t *testing.T) {
	var help, list strings.Builder
	if code := mainRun(t.Context(), []string{"--help"}, &help, io.Discard); code != 0 {
		t.Errorf("--help: exit code %d", code)
	}
	if code := mainRun(t.Context(), []string{"--list-hostile"}, &list, io.Discard); code != 0 {
		t.Errorf("--list-hostile: exit code %d", code)
	}
	for _, want := range []string{"subscribeRepos", "-truth", "-rate", "-window-frames", "/admin/"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("the manual does not mention %s", want)
		}
	}
	for _, want := range []string{"empty", "error-unknown", "frame-over-5-mib"} {
		if !strings.Contains(list.String(), want) {
			t.Errorf("the list of malformed messages lacks %s", want)
		}
	}
}
