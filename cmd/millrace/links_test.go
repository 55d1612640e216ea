package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// linkSet is what a source links to.
type linkSet struct{ source, subject string }

// linksOf returns what is linked after all of these events. It has by set the records, the newest
// first, and the accounts that are not active, whose records are in no list.
func linksOf(t *testing.T, log []truthEvent) (sets map[linkSet][]string, inactive map[string]bool) {
	t.Helper()
	newest := make(map[string]int) // by record
	inactive = make(map[string]bool)
	for i := range log {
		var e struct {
			DID     string
			Commit  *struct{ Collection, RKey string }
			Account *struct{ Active bool }
		}
		fromJSON(t, log[i].JSON, &e)
		if e.Commit != nil {
			newest["at://"+e.DID+"/"+e.Commit.Collection+"/"+e.Commit.RKey] = i
		}
		if e.Account != nil {
			inactive[e.DID] = !e.Account.Active
		}
	}
	sets = make(map[linkSet][]string)
	for uri, refs := range tableOf(t, slices.Clone(log)).Records() {
		collection := strings.Split(uri, "/")[3]
		for _, ref := range refs {
			set := linkSet{collection + ":" + ref.Path(), ref.Subject()}
			sets[set] = append(sets[set], uri)
		}
	}
	for _, records := range sets {
		slices.SortFunc(records, func(a, b string) int { return newest[b] - newest[a] })
	}
	return sets, inactive
}

// getLinks decodes the answer to a request for links.
func getLinks(t *testing.T, addr, path string, values url.Values, answer any) {
	t.Helper()
	resp, err := http.Get("http://" + addr + path + "?" + values.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var failure struct{ Error, Message string }
	if resp.StatusCode != http.StatusOK {
		_ = json.NewDecoder(resp.Body).Decode(&failure)
		t.Fatalf("%s?%s: %s: %s", path, values.Encode(), resp.Status, failure.Message)
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		t.Fatal(err)
	}
}

// backlinks pages through all that link.
func backlinks(t *testing.T, addr string, set linkSet, limit int) (records []string, total int) {
	t.Helper()
	values := url.Values{"subject": {set.subject}, "source": {set.source}, "limit": {fmt.Sprint(limit)}}
	for {
		var page struct {
			Total   int
			Records []struct{ DID, Collection, RKey string }
			Cursor  *string
		}
		getLinks(t, addr, "/xrpc/blue.microcosm.links.getBacklinks", values, &page)
		for _, r := range page.Records {
			records = append(records, "at://"+r.DID+"/"+r.Collection+"/"+r.RKey)
		}
		if page.Cursor == nil {
			return records, page.Total
		}
		values.Set("cursor", *page.Cursor)
	}
}

// TestLinks: a server that is killed, and keeps links only from then on, answers what the truth
// says of each set.
func TestLinks(t *testing.T) {
	t.Parallel()
	const frames = 2400
	sim := startRelaysim(t, "--rate", sustainedRate(frames), "--frames", fmt.Sprint(frames), "--wait-for-consumer", "--churn-every", "5", "--truth-references")
	dir, addr := t.TempDir(), freeAddr(t)
	without := startMillrace(t, sim.url, dir, addr, "--references=on")
	waitServing(t, addr)
	readFirst(t, addr, 1) // until something is committed a restart begins live
	sim.waitMade(t, frames/3)
	without.kill()
	with := startMillrace(t, sim.url, dir, addr, "--references=on", "--links")
	sim.waitMade(t, frames/3*2)
	with.kill()
	startMillrace(t, sim.url, dir, addr, "--references=on", "--links")
	sim.waitMade(t, frames)
	want := readTruth(t, sim.truth)
	waitServing(t, addr)
	log := readAll(t, addr, "cursor=0", len(want))
	checkExact(t, "the log", log, want)
	last := lastCursor(t, addr)
	waitFor(t, "the links", func() bool {
		resp, err := http.Get("http://" + addr + "/links/all?target=did:web:example.com&wait=10000&at=" + last)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})

	sets, inactive := linksOf(t, log)
	byCount := slices.SortedFunc(maps.Keys(sets), func(a, b linkSet) int {
		return cmp.Or(len(sets[b])-len(sets[a]), strings.Compare(a.source+a.subject, b.source+b.subject))
	})
	for i, set := range byCount[:min(len(byCount), 150)] {
		checkLinks(t, addr, set, 1+i%50, sets[set], inactive)
	}
	t.Logf("%d sets, the largest of %d records", len(sets), len(sets[byCount[0]]))
}

// checkLinks compares what the server answers of a set.
func checkLinks(t *testing.T, addr string, set linkSet, limit int, want []string, inactive map[string]bool) {
	t.Helper()
	did := func(uri string) string { return strings.Split(uri, "/")[2] }
	var listed []string
	accounts := make(map[string]bool)
	for _, uri := range want {
		accounts[did(uri)] = true
		if !inactive[did(uri)] {
			listed = append(listed, uri)
		}
	}
	var all struct {
		Links map[string]map[string]struct {
			Records int
			DIDs    int `json:"distinct_dids"`
		}
	}
	collection, path, _ := strings.Cut(set.source, ":")
	// Deleted accounts leave the counts when they are swept.
	waitFor(t, "the counts", func() bool {
		all.Links = nil
		getLinks(t, addr, "/links/all", url.Values{"target": {set.subject}}, &all)
		counts := all.Links[collection]["."+path]
		return counts.Records == len(want) && counts.DIDs == len(accounts)
	})
	got, total := backlinks(t, addr, set, limit)
	if diff := gocmp.Diff(listed, got); diff != "" || total != len(want) {
		t.Fatalf("%v: total %d, want %d; -want +got\n%.2000s", set, total, len(want), diff)
	}
}

// lastCursor returns the position of the newest event.
func lastCursor(t *testing.T, addr string) string {
	t.Helper()
	var answer struct{ Newest struct{ Cursor string } }
	getLinks(t, addr, "/cursors", nil, &answer)
	return answer.Newest.Cursor
}

// TestLinksUsage: --links without references is refused before the disk is touched.
func TestLinksUsage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var out strings.Builder
	if code := run(t.Context(), []string{"serve", "--data-dir", dir, "--links"}, &out, &out); code != exitUsage || !strings.Contains(out.String(), "--references=on") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory: %v", err)
	}
}
