package linksapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDocsExamples runs the examples of docs/links.md: those of the shell, then the one in
// JavaScript, which reads two pages.
func TestDocsExamples(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/links.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```(sh|js)\n(.*?)```").FindAllStringSubmatch(string(raw), -1)
	if len(examples) != 2 || examples[0][1] != "sh" || examples[1][1] != "js" {
		t.Fatalf("%d examples, not one of the shell and one in JavaScript", len(examples))
	}
	w := newWorld()
	w.put(account(1), like, "a", reference{"subject.uri", post(1)})
	w.put(account(2), like, "b", reference{"subject.uri", post(1)})
	w.put(account(2), "app.bsky.feed.repost", "c", reference{"subject.uri", post(1)})
	followed, followers := account(3), ""
	for i := range 1001 { // the newest first
		w.put(account(100+i), "app.bsky.graph.follow", "f", reference{"subject", followed})
		followers = account(100+i) + "\n" + followers
	}
	_, h := newTestAPI(t, w)
	server := httptest.NewServer(h)
	defer server.Close()

	run := func(example, placeholder, subject string, command ...string) string {
		t.Helper()
		if _, err := exec.LookPath(command[0]); err != nil && os.Getenv("MILLRACE_TEST_CLIENTS") != "require" {
			t.Skipf("SKIPPED: %v", err)
		}
		for from, to := range map[string]string{"localhost:6008": strings.TrimPrefix(server.URL, "http://"), placeholder: subject} {
			if !strings.Contains(example, from) {
				t.Fatalf("no %s in:\n%s", from, example)
			}
			example = strings.ReplaceAll(example, from, to)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Stdin = strings.NewReader(example)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s\n%s", command, err, out, stderr.Bytes())
		}
		return string(out)
	}
	got := run(examples[0][2], "at://did:plc:…/app.bsky.feed.post/3l…", post(1), "bash", "-e")
	want := fmt.Sprintln(`{"total":2}`) + fmt.Sprintln(`{"links":{"app.bsky.feed.like":{".subject.uri":{"records":2,"distinct_dids":2}},`+
		`"app.bsky.feed.repost":{".subject.uri":{"records":1,"distinct_dids":1}}}}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shell: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(followers, run(examples[1][2], "did:plc:…", followed, "node", "--input-type=module")); diff != "" {
		t.Errorf("JavaScript: -want +got\n%s", diff)
	}
}
