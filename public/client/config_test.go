package client_test

import (
	"strings"
	"testing"
	"time"

	"millrace/public/client"
)

func TestConfig(t *testing.T) {
	for _, tc := range []struct {
		field string
		cfg   client.Config
	}{
		{"URL", client.Config{URL: "ftp://x"}},
		{"URL", client.Config{URL: "ws://"}},
		{"URL: ws://me:xxxxx@x/subscribe has a user name", client.Config{URL: "ws://me:secret@x"}},
		{"Cursor", client.Config{URL: "x", Cursor: "yesterday"}},
		{"Kinds", client.Config{URL: "x", Kinds: []client.Kind{"post"}}},
		{"Options: 101 collections", client.Config{URL: "x", Options: client.Options{Collections: make([]string, 101)}}},
		{"Options: 10001 DIDs, ", client.Config{URL: "x", Options: client.Options{DIDs: make([]string, 10_001)}}},
		{"Options: 10001 subjects", client.Config{URL: "x", Options: client.Options{Subjects: make([]string, 10_001)}}},
		{"Options: 10001 DIDs of subjects", client.Config{URL: "x", Options: client.Options{SubjectDIDs: make([]string, 10_001)}}},
		{"Options: 101 sources", client.Config{URL: "x", Options: client.Options{Sources: make([]string, 101)}}},
		{"Options: MaxMessageBytes", client.Config{URL: "x", Options: client.Options{MaxMessageBytes: -1}}},
		{"Heartbeat", client.Config{URL: "x", Heartbeat: 1500 * time.Millisecond}},
		{"Heartbeat", client.Config{URL: "x", Heartbeat: time.Hour + time.Second}},
		{"Heartbeat", client.Config{URL: "x", Heartbeat: -time.Second}},
		{"MinBackoff", client.Config{URL: "x", MinBackoff: -1}},
		{"MaxBackoff", client.Config{URL: "x", MaxBackoff: -1}},
		{"Silence", client.Config{URL: "x", Silence: -1}},
		{"Overlap", client.Config{URL: "x", Overlap: -1}},
	} {
		if _, err := client.New(tc.cfg); err == nil || !strings.HasPrefix(err.Error(), "client: field "+tc.field) {
			t.Errorf("field %s: error %v", tc.field, err)
		}
	}
	if _, err := client.New(client.Config{URL: "x", Heartbeat: time.Hour, Options: client.Options{
		Collections: make([]string, 100), DIDs: make([]string, 10_000), MaxMessageBytes: 1,
		Subjects: make([]string, 10_000), SubjectDIDs: make([]string, 10_000), Sources: make([]string, 100),
	}}); err != nil {
		t.Errorf("all that a server takes: %v", err)
	}
	for in, want := range map[string]string{
		"localhost:6008": "ws://localhost:6008/subscribe", "https://x.test": "wss://x.test/subscribe", "ws://x/y?z=1": "ws://x/y?z=1", "ws://x//": "ws://x/subscribe",
	} {
		if u, err := client.SubscribeURL(in); err != nil || u.String() != want {
			t.Errorf("%s: %v, %v, want %s", in, u, err, want)
		}
	}
}
