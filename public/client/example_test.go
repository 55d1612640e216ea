package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"testing"
	"time"

	"millrace/public/client"
)

// exampleServer stands for a server somewhere.
func exampleServer(frames ...frame) (url string, stop func()) {
	var t exampleTB
	l := newEventLog(&t)
	l.add(frames...)
	s := serve(&t, l)
	return s.URL, func() {
		for _, f := range t.cleanups {
			defer f()
		}
	}
}

// exampleTB is as much of a testing.TB as the helpers need.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (t *exampleTB) Helper()           {}
func (t *exampleTB) Cleanup(f func())  { t.cleanups = append(t.cleanups, f) }
func (t *exampleTB) Fatal(args ...any) { log.Fatal(args...) }

// A bot that reads new posts, and would go on where it was if it were started again with the
// cursor.
func Example() {
	url, stop := exampleServer(
		commit(didN(1), "app.bsky.feed.post", "first", "3k1"),
		commit(didN(1), "app.bsky.feed.like", "not wanted", "3k2"),
		commit(didN(2), "app.bsky.feed.post", "second", "3k3"),
	)
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c, err := client.New(client.Config{
		URL:     url,
		Options: client.Options{Collections: []string{"app.bsky.feed.post"}},
		Kinds:   []client.Kind{client.KindCommit},
		Cursor:  "0", // the oldest event there is; or what was saved; or "" for what comes now
	})
	if err != nil {
		log.Fatal(err)
	}
	saved := ""
	for event, err := range c.Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if event.Commit.Operation == client.OpCreate {
			var post struct{ Text string }
			if err := json.Unmarshal(event.Commit.Record, &post); err != nil {
				log.Fatal(err)
			}
			fmt.Println(event.URI(), post.Text)
		}
		saved = event.Cursor
		if event.Commit.RKey == "3k3" {
			break
		}
	}
	fmt.Println("to go on, another time:", saved != "" && saved == c.Cursor())
	// Output:
	// at://did:plc:aaaaaaaaaaaaaaaaaaaaaaab/app.bsky.feed.post/3k1 first
	// at://did:plc:aaaaaaaaaaaaaaaaaaaaaaac/app.bsky.feed.post/3k3 second
	// to go on, another time: true
}

// Reading compressed, with what the server reports besides events. OnInfo and OnWait run within
// the loop, so they may use what it uses.
func Example_replay() {
	url, stop := exampleServer(identity(didN(1)), identity(didN(2)), identity(didN(3)))
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	n := 0
	c, err := client.New(client.Config{
		URL: url, Cursor: "0", Compress: true, Strict: true,
		OnInfo: func(i client.Info) {
			switch i.Name {
			case client.InfoLive: // all that was in the log has been read
				fmt.Println("read the log:", n, "events")
				cancel()
			case client.InfoGap:
				fmt.Println("the relay may have lost events between", i.From, "and", i.To)
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, err := range c.Events(ctx) {
		if err != nil {
			fmt.Println(err)
			break
		}
		n++
	}
	// Output:
	// read the log: 3 events
	// context canceled
}

// Options can be replaced while events come.
func ExampleClient_Update() {
	url, stop := exampleServer(identity(didN(1)))
	defer stop()
	c, err := client.New(client.Config{URL: url, Options: client.Options{DIDs: []string{didN(1)}}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Update(client.Options{DIDs: []string{didN(1), didN(2)}}))
	fmt.Println(c.Update(client.Options{Collections: make([]string, 101)}))
	// Output:
	// <nil>
	// client: update: 101 collections, a server takes 100
}
