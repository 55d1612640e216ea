package main

import (
	"encoding/json"
	"testing"
)

// checkUIDs makes sure that the UIDs of events are a bijection: one string, one UID, and the
// reverse.
func checkUIDs(t *testing.T, events []truthEvent) {
	t.Helper()
	uidOf, stringOf := map[string]string{}, map[string]string{}
	check := func(s, uid string) {
		t.Helper()
		if uid == "" || uid == "0" {
			t.Fatalf("%s has no UID", s)
		}
		if was, ok := uidOf[s]; ok && was != uid {
			t.Fatalf("%s has the UIDs %s and %s", s, was, uid)
		}
		if was, ok := stringOf[uid]; ok && was != s {
			t.Fatalf("UID %s stands for %s and %s", uid, was, s)
		}
		uidOf[s], stringOf[uid] = uid, s
	}
	for _, e := range events {
		var event struct {
			DID    string
			Kind   string
			Commit struct{ Collection, RKey string }
		}
		if err := json.Unmarshal([]byte(e.JSON), &event); err != nil {
			t.Fatal(err)
		}
		check(event.DID, e.DID)
		e.referenceUIDs(check)
		if event.Kind == "commit" {
			check("at://"+event.DID+"/"+event.Commit.Collection+"/"+event.Commit.RKey, e.URI)
		} else if e.URI != "" {
			t.Fatalf("an %s event has the URI UID %s", event.Kind, e.URI)
		}
	}
}
