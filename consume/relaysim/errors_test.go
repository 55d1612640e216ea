package relaysim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNewFails: what a relay cannot be made of is said at once.
func TestNewFails(t *testing.T) {
	dir := t.TempDir()
	none, odd := filepath.Join(dir, "none", "x"), filepath.Join(dir, "odd")
	if err := os.WriteFile(odd, []byte("\x02\x00\x00\x00ab"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, says := range map[string]string{
		"": "", "--frames=-1": "--frames: value", "--hostile-kinds=x": "--hostile-kinds: no kind",
		"--capture=" + none: "open capture", "--capture=" + odd: "no frames to send", "--once --capture=" + odd: "", "--truth=" + none: "open truth file",
	} {
		cfg, err := ParseFlags(append(strings.Fields(flags), "--generate=10", "--accounts=5"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(cfg)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", flags, err)
		}
		if err == nil {
			_ = r.producer.truth.close()
		}
	}
}

// TestLists: the library of messages and the actions are listed, a line each.
func TestLists(t *testing.T) {
	var b bytes.Buffer
	ListHostile(&b)
	for _, k := range hostileKinds() {
		if !strings.Contains(b.String(), k.name+" ") {
			t.Errorf("%s is not listed", k.name)
		}
	}
	if n := strings.Count(b.String(), "\n"); n != len(hostileKinds()) || !strings.Contains(b.String(), "(served)") {
		t.Errorf("%d lines:\n%s", n, &b)
	}
	w := httptest.NewRecorder()
	newRelay(t, "--generate", "10", "--accounts", "5").handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/admin/", nil))
	for _, a := range actions() {
		if !strings.Contains(w.Body.String(), "POST /admin/"+a.name+" ") || !strings.Contains(w.Body.String(), " "+a.help+"\n") {
			t.Errorf("%s is not listed", a.name)
		}
	}
	if n := strings.Count(w.Body.String(), "\n"); n != len(actions())+1 || !strings.Contains(w.Body.String(), "GET /admin/status ") {
		t.Errorf("%d lines:\n%s", n, w.Body)
	}
}

// TestVerbatimActions: nothing is added to frames that are sent as they were captured.
func TestVerbatimActions(t *testing.T) {
	r := startRelay(t, "--once", "--capture", corpus(t, "frames.bin.zst"), "--wait-for-consumer")
	for _, path := range []string{"jump?by=1", "again?n=1", "restart-numbering", "inject?kind=" + hostileKinds()[0].name} {
		if status, body := r.admin(path); status != http.StatusBadRequest || !strings.Contains(string(body), "exactly as captured") {
			t.Errorf("%s: %d: %s", path, status, body)
		}
	}
}

// TestPLCAnswers: each fault that is one answer, compared with the answer without fault.
func TestPLCAnswers(t *testing.T) {
	did := "did:plc:" + strings.Repeat("a", 24)
	p := &PLC{}
	ask := func(path string) (w *httptest.ResponseRecorder, document map[string]any) {
		w = httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		_ = json.Unmarshal(w.Body.Bytes(), &document) // nil if it is none
		return w, document
	}
	_, good := ask("/" + did)
	method := func(document map[string]any) map[string]any {
		return document["verificationMethod"].([]any)[0].(map[string]any)
	}
	for name, tc := range map[string]struct {
		status int
		change func(document map[string]any) // nil: it is no document
	}{
		"": {200, func(map[string]any) {}}, "error": {500, nil}, "busy": {429, nil}, "absent": {404, nil}, "tombstone": {410, nil}, "redirects": {302, nil}, "garbage": {200, nil}, "truncated": {200, nil},
		"other-did":        {200, func(d map[string]any) { d["id"] = did[:len(did)-1] + "1" }},
		"other-controller": {200, func(d map[string]any) { method(d)["controller"] = "did:plc:" + strings.Repeat("z", 24) }},
		"other-key": {200, func(d map[string]any) {
			key, err := PublicKey(did + "y")
			if err != nil {
				t.Fatal(err)
			}
			method(d)["publicKeyMultibase"] = key.Multibase()
		}},
		"no-key":    {200, func(d map[string]any) { delete(d, "verificationMethod") }},
		"key-type":  {200, func(d map[string]any) { method(d)["type"] = "Ed25519VerificationKey2020" }},
		"key-bytes": {200, func(d map[string]any) { method(d)["publicKeyMultibase"] = "zQ3shZZZZZZ" }},
	} {
		if err := p.SetFault(name); err != nil {
			t.Fatal(err)
		}
		w, document := ask("/" + did)
		if tc.change == nil {
			if w.Code != tc.status || document["id"] != nil || w.Header().Get("Retry-After") != map[string]string{"busy": "2"}[name] {
				t.Errorf("%s: %d %v %s", name, w.Code, w.Header(), w.Body)
			}
			continue
		}
		var want map[string]any
		raw, _ := json.Marshal(good)
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		tc.change(want)
		if diff := cmp.Diff(want, document); diff != "" || w.Code != tc.status {
			t.Errorf("%s: %d, -want +got\n%s", name, w.Code, diff)
		}
	}
	_ = p.SetFault("")
	for _, path := range []string{"/did:web:a.example.com", "/" + did + "a", "/did:plc:a"} {
		if w, _ := ask(path); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "DID not registered: "+path[1:]) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	requests := p.Requests()
	if err := p.Export(io.Discard, did); err != nil || p.Requests() != requests {
		t.Errorf("an export: %v", err)
	}
	if err := p.Export(errWriter{}, did); !errors.Is(err, errWrite) {
		t.Errorf("an export that cannot be written: %v", err)
	}
}

var errWrite = errors.New("cannot be written")

type errWriter struct{}

func (errWriter) Write([]byte) (int, error) { return 0, errWrite }

// TestSigningKeys: an account has one key, and no other account has it.
func TestSigningKeys(t *testing.T) {
	curves := make(map[string]bool)
	for i := range 12 {
		a, err := PublicKey(fmt.Sprint("did:web:", i))
		if err != nil {
			t.Fatal(err)
		}
		curves[fmt.Sprintf("%T", a)] = true
		for j := range 12 {
			b, err := PublicKey(fmt.Sprint("did:web:", j))
			if err != nil || a.Equal(b) != (i == j) {
				t.Errorf("keys of %d and %d, %v", i, j, err)
			}
		}
	}
	if len(curves) != 2 {
		t.Errorf("curves: %v", curves)
	}
}

// TestBadLines: a line of the truth that is none is named.
func TestBadLines(t *testing.T) {
	table := NewTable()
	deleted := `{"did":"a","account":{"status":"deleted","time":"noon"}}`
	for event, says := range map[string]string{"x": "truth of seq 7, op 2: ", deleted: "truth of seq 7: "} {
		if _, err := table.Apply(&Line{Seq: 7, Op: 2, Event: json.RawMessage(event)}); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%s: %v", event, err)
		}
	}
	if _, err := table.complete(nil, []byte(`{"epoch":0,"seq":7,"op":2,"event":`+deleted+"}\n")); err == nil || !strings.HasPrefix(err.Error(), "truth of seq 7: ") {
		t.Errorf("%v", err)
	}
	file := &truthFile{table: table}
	if err := file.write([]byte("x\n")); err == nil || !strings.HasPrefix(err.Error(), "read truth line: ") {
		t.Errorf("%v", err)
	}
}
