package public

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed web
var webFiles embed.FS

// pageHeaders go with the page and its files. The page shows what anybody on the network wrote: it
// may load nothing and connect to nobody but its own server.
func pageHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	// kept, but asked for anew: cheap, and never a mix of two versions
	h.Set("Cache-Control", "no-cache")
}

// asset is one file of the page.
type asset struct {
	contentType string
	tag         string // hash of body
	body        []byte
	gzipped     []byte // nil: no smaller
}

// loadAssets returns the page's files by their names below web, which has no directories. What is
// embedded can be read.
func loadAssets() map[string]*asset {
	assets := make(map[string]*asset)
	entries, _ := webFiles.ReadDir("web")
	for _, entry := range entries {
		name := entry.Name()
		body, _ := webFiles.ReadFile("web/" + name)
		sum := sha256.Sum256(body)
		assets[name] = &asset{contentType: contentType(name), tag: hex.EncodeToString(sum[:16]), body: body, gzipped: gzipped(body)}
	}
	return assets
}

func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "text/plain; charset=utf-8"
}

// gzipped returns body compressed, nil if that is no smaller. In memory nothing of it fails.
func gzipped(body []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	_, _ = w.Write(body)
	_ = w.Close()
	if b.Len() >= len(body) {
		return nil
	}
	return b.Bytes()
}

// handleIndex answers browsers with the page, and other clients with a few lines of text.
func (s *Server) handleIndex(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Vary", "Accept")
	if !accepts(r.Header.Values("Accept"), "text/html") {
		s.writeIndexText(w, r)
		return
	}
	s.serveAsset(w, r, "index.html")
}

// handleAsset serves a file of the page.
func (s *Server) handleAsset(w http.ResponseWriter, r *http.Request) {
	s.serveAsset(w, r, r.PathValue("path"))
}

func (s *Server) serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	a := s.assets()[name]
	if a == nil {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	pageHeaders(h)
	h.Set("Content-Type", a.contentType)
	h.Add("Vary", "Accept-Encoding")
	if path.Ext(name) == ".svg" { // at hand when the server is gone
		h.Set("Cache-Control", "max-age=86400")
	}
	body, tag := a.body, a.tag
	if a.gzipped != nil && accepts(r.Header.Values("Accept-Encoding"), "gzip") {
		body, tag = a.gzipped, a.tag+"-gzip"
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// accepts says whether an Accept or Accept-Encoding header names what, and not with the quality 0.
// Wildcards do not count: curl sends them.
func accepts(header []string, what string) bool {
	for _, line := range header {
		for part := range strings.SplitSeq(line, ",") {
			name, parameters, _ := strings.Cut(part, ";")
			if !strings.EqualFold(strings.TrimSpace(name), what) {
				continue
			}
			for p := range strings.SplitSeq(parameters, ";") {
				key, value, _ := strings.Cut(p, "=")
				if strings.EqualFold(strings.TrimSpace(key), "q") && strings.Trim(value, " 0.") == "" {
					return false
				}
			}
			return true
		}
	}
	return false
}
