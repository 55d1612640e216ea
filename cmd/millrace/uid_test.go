package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
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
		fromJSON(t, e.JSON, &event)
		check(event.DID, e.DID)
		e.referenceUIDs(check)
		if event.Kind == "commit" {
			check("at://"+event.DID+"/"+event.Commit.Collection+"/"+event.Commit.RKey, e.URI)
		} else if e.URI != "" {
			t.Fatalf("an %s event has the URI UID %s", event.Kind, e.URI)
		}
	}
}

// TestUIDsOfAnotherServer: what is no millrace, or sends us elsewhere, is named without a password.
func TestUIDsOfAnotherServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/page", http.StatusMovedPermanently)
		case "/down":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "<html>\r\n<head>")
		case "/page":
			fmt.Fprint(w, "<html>")
		case "/status":
			fmt.Fprint(w, `{"status":"ok","uids":{"8":"did:web:a.test"}}`)
		}
	}))
	defer server.Close()
	for path, want := range map[string]string{
		"/moved":  "/moved: 301 Moved Permanently: it is at ",
		"/down":   "/down: 502 Bad Gateway",
		"/page":   "/page does not answer as a millrace: ",
		"/status": "/status does not answer as a millrace",
	} {
		u, err := url.Parse(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("name", "secret")
		err = lookupUIDs(t.Context(), u, []string{"7"}, io.Discard)
		if got := fmt.Sprint(err); !strings.Contains(got, u.Host+want) || strings.Contains(got, "secret") || strings.Contains(got, "<html") {
			t.Errorf("%s: %s", path, got)
		}
	}
}
