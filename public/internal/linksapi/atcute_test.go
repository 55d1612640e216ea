package linksapi

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// installAtcute returns a directory with testdata/atcute and what that depends on. Where that
// cannot be, the test is skipped, saying why; with MILLRACE_TEST_CLIENTS=require it fails.
func installAtcute(t *testing.T) (dir string) {
	t.Helper()
	wanted := os.Getenv("MILLRACE_TEST_CLIENTS")
	if wanted == "" && os.Getenv("MILLRACE_TEST_LONG") == "" {
		t.Skip("neither MILLRACE_TEST_LONG nor MILLRACE_TEST_CLIENTS is set: this test installs npm packages")
	}
	dir = t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "links.mjs"} {
		raw, err := os.ReadFile(filepath.Join("testdata", "atcute", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), raw, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil && wanted == "require" {
		t.Fatalf("npm ci: %v\n%s", err, out)
	} else if err != nil {
		t.Skipf("SKIPPED: npm ci: %v\n%s", err, out)
	}
	return dir
}

// A client that others have written, which checks what it sends and receives against schemas, calls
// each endpoint and pages to the end.
func TestAtcuteClient(t *testing.T) {
	dir := installAtcute(t)
	w := newWorld()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 600 {
		w.change(rng)
	}
	_, h := newTestAPI(t, w)
	server := httptest.NewServer(h)
	defer server.Close()

	likes := ask{subject: post(1), source: likeSource}
	some := ask{subject: post(0), source: likeSource, reverse: true, dids: []string{account(0), account(1), account(2)}}
	members := ask{subject: list(1), source: listitem + ":list", other: "subject", others: []string{account(1), account(2)}}
	nobody := ask{subject: "did:web:nobody.example", source: "a.b.c:d"}
	count := func(q ask) ([]element, int) {
		_, total := w.wantRecords(q)
		return nil, total
	}
	type params map[string]any
	calls := []struct {
		Name   string `json:"name"`
		Params params `json:"params"`
		ask    ask
		want   func(ask) ([]element, int)
	}{
		{"getBacklinks", params{}, likes, w.wantRecords},
		{"getBacklinks", params{"limit": 3, "reverse": true, "did": some.dids}, some, w.wantRecords},
		{"getBacklinks", params{}, nobody, w.wantRecords},
		{"getBacklinksCount", params{}, likes, count},
		{"getBacklinkDids", params{"limit": 1}, likes, w.wantDIDs},
		{"getManyToManyCounts", params{"limit": 1, "pathToOther": "subject", "otherSubject": members.others}, members, w.wantCounts},
		{"getManyToMany", params{"limit": 2, "pathToOther": "subject", "otherSubject": members.others}, members, w.wantItems},
	}
	for _, c := range calls {
		c.Params["subject"], c.Params["source"] = c.ask.subject, c.ask.source
	}
	for i, got := range runAtcute(t, dir, server.URL, calls) {
		c := &calls[i]
		want, total := c.want(c.ask)
		pages := 1
		if limit, ok := c.Params["limit"].(int); ok {
			pages = (len(want) + limit - 1) / limit
		}
		var items []string
		for _, item := range got.Items {
			items = append(items, string(item))
		}
		wrong := func(n int) bool { return n != total }
		if diff := cmp.Diff(jsonOf(want), items); diff != "" || got.Pages != pages || slices.ContainsFunc(got.Totals, wrong) {
			t.Errorf("%s %v: %d pages, want %d; totals %v, want %d; -want +got\n%s", c.Name, c.Params, got.Pages, pages, got.Totals, total, diff)
		}
	}
}

// atcuteAnswer is what links.mjs prints of a call.
type atcuteAnswer struct {
	Pages  int
	Totals []int
	Items  []json.RawMessage
}

func runAtcute(t *testing.T, dir, service string, calls any) (answers []atcuteAnswer) {
	t.Helper()
	raw, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	node := exec.CommandContext(ctx, "node", "links.mjs", service, string(raw))
	node.Dir = dir
	var stderr bytes.Buffer
	node.Stderr = &stderr
	out, err := node.Output()
	if err == nil {
		err = json.Unmarshal(out, &answers)
	}
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, stderr.Bytes())
	}
	return answers
}
