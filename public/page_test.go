package public

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const browserAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// TestPageIsServed: browsers get the whole page, with the headers that restrict it; all others get
// text.
func TestPageIsServed(t *testing.T) {
	s := serve(t, newTestLog(t), nil)
	for accept, html := range map[string]bool{
		browserAccept: true, "text/html": true, "Text/HTML;q=0.1": true, "application/json, text/html ; q=1": true,
		"": false, "*/*": false, "text/*": false, "text/plain": false, "text/html;q=0": false, "text/html; q=0.0": false, "x/text/html": false,
	} {
		w := s.get("GET", "/", http.Header{"Accept": {accept}})
		if got := strings.HasPrefix(w.Header().Get("Content-Type"), "text/html"); w.Code != 200 || got != html {
			t.Errorf("Accept %q: %d %s", accept, w.Code, w.Header().Get("Content-Type"))
		}
		if !strings.Contains(strings.Join(w.Header().Values("Vary"), ","), "Accept") {
			t.Errorf("Accept %q: Vary is %q", accept, w.Header().Values("Vary"))
		}
	}
	assets := loadAssets()
	for name, a := range assets {
		path, header := "/web/"+name, http.Header{}
		if name == "index.html" {
			path, header = "/", http.Header{"Accept": {browserAccept}}
		}
		w := s.get("GET", path, header)
		h := w.Header()
		if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), a.body) || h.Get("Content-Encoding") != "" {
			t.Errorf("%s: %d, %d bytes, %v", path, w.Code, w.Body.Len(), h)
		}
		if csp := h.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none';") || strings.Contains(csp, "unsafe") ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, h)
		}
		if vary := h.Values("Vary"); !slices.Contains(vary, "Accept-Encoding") || slices.Contains(vary, "Accept") != (path == "/") {
			t.Errorf("%s: Vary is %q", path, vary)
		}
		if cache := h.Get("Cache-Control"); cache != map[bool]string{true: "max-age=86400", false: "no-cache"}[strings.HasSuffix(name, ".svg")] {
			t.Errorf("%s: Cache-Control %q", path, cache)
		}
		header.Set("If-None-Match", h.Get("ETag"))
		if w := s.get("GET", path, header); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
			t.Errorf("%s again: %d", path, w.Code)
		}
		header.Set("Accept-Encoding", "br, gzip")
		if w := s.get("GET", path, header); w.Code != 200 || w.Header().Get("Content-Encoding") != "gzip" {
			t.Errorf("%s with the other encoding's ETag: %d %v", path, w.Code, w.Header())
		} else if zr, err := gzip.NewReader(w.Body); err != nil {
			t.Errorf("%s: %v", path, err)
		} else if body, err := io.ReadAll(zr); err != nil || !bytes.Equal(body, a.body) {
			t.Errorf("%s: unpacked it is %d bytes: %v", path, len(body), err)
		}
	}
	for _, path := range []string{"/web/", "/web/none.js", "/web/../page.go", "/web/..%2fpage.go"} {
		if w := s.get("GET", path, nil); w.Code == 200 {
			t.Errorf("%s: %d, %d bytes", path, w.Code, w.Body.Len())
		}
	}
}

// TestPageIsWhole: what the page refers to is embedded, and nothing of it is elsewhere.
func TestPageIsWhole(t *testing.T) {
	assets := loadAssets()
	if len(assets) < 8 {
		t.Errorf("only %d files", len(assets))
	}
	total := 0
	for _, a := range assets {
		total += len(a.gzipped)
	}
	if total > 30<<10 {
		t.Errorf("the page is %d bytes, compressed", total)
	}
	html := string(assets["index.html"].body)
	refs := regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(html, -1)
	for _, m := range append(refs, regexp.MustCompile(`from '\./()([^']+)'`).FindAllStringSubmatch(string(assets["page.js"].body), -1)...) {
		ref := m[len(m)-1]
		if name, ok := strings.CutPrefix(ref, "web/"); (ok || strings.HasSuffix(ref, ".js")) && assets[name] == nil {
			t.Errorf("%s is missing", ref)
		}
	}
	elsewhere := regexp.MustCompile(`(?i)(?:src|href)="(?:https?:)?//|@import|:\s*url\(|\son[a-z]+="|\sstyle="|<script>|innerHTML|insertAdjacentHTML|document\.write|\beval\(`)
	for _, name := range []string{"index.html", "page.css", "page.js", "chart.js", "day.js", "history.js", "watch.js", "event.js", "format.js", "linked.js"} {
		if found := elsewhere.Find(assets[name].body); found != nil {
			t.Errorf("%s has %q", name, found)
		}
	}
}
