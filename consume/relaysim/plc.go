package relaysim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// PLC is a PLC directory that has each did:plc, with the key that the account signs with in every
// world. It is the handler of GET /DID. The zero value is ready for use. Safe for concurrent use.
type PLC struct {
	requests atomic.Int64

	mu    sync.Mutex
	fault http.HandlerFunc // nil: none
	keyOf map[string]string
}

const (
	// PLCSlow is how long the fault "slow" takes for each answer, which is that of its beginning.
	PLCSlow = 2 * time.Second
	// trickleEvery is how often the fault "trickle" sends a byte.
	trickleEvery = 100 * time.Millisecond
)

// faults returns the ways in which a directory can fail or lie, by their names.
func (p *PLC) faults() map[string]http.HandlerFunc {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"message":"no"}`, code) }
	}
	changed := func(change func(document map[string]any)) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			document := p.document(askedFor(req))
			change(document)
			_ = json.NewEncoder(w).Encode(document)
		}
	}
	key := func(field, value string) http.HandlerFunc {
		return changed(func(document map[string]any) {
			document["verificationMethod"].([]any)[0].(map[string]any)[field] = value
		})
	}
	return map[string]http.HandlerFunc{
		"down":            func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"silent":          func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() },
		"slow":            p.answerSlowly,
		"trickle":         writesEndlessly(" ", trickleEvery),
		"endless":         writesEndlessly(strings.Repeat(" ", 32<<10), 0),
		"endless-headers": writeHeadersEndlessly,
		"error":           status(http.StatusInternalServerError),
		"busy": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "2")
			http.Error(w, `{"message":"Too Many Requests"}`, http.StatusTooManyRequests)
		},
		"absent":    status(http.StatusNotFound),
		"tombstone": status(http.StatusGone),
		"redirects": func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, req.URL.Path, http.StatusFound) },
		"garbage":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "\x00<html>\xff") },
		"truncated": func(w http.ResponseWriter, req *http.Request) {
			text, _ := json.Marshal(p.document(askedFor(req)))
			_, _ = w.Write(text[:len(text)/2])
		},
		"other-did": changed(func(document map[string]any) {
			did := document["id"].(string)
			document["id"] = did[:len(did)-1] + "1" // no did:plc has a 1
		}),
		"other-controller": key("controller", "did:plc:"+strings.Repeat("z", 24)),
		"other-key": changed(func(document map[string]any) {
			did := document["id"].(string)
			document["verificationMethod"] = verificationMethod(did, did+"y")
		}),
		"no-key":    changed(func(document map[string]any) { delete(document, "verificationMethod") }),
		"key-type":  key("type", "Ed25519VerificationKey2020"),
		"key-bytes": key("publicKeyMultibase", "zQ3shZZZZZZ"),
	}
}

// PLCFaults returns the names of the faults that SetFault knows.
func PLCFaults() []string { return slices.Sorted(maps.Keys(new(PLC).faults())) }

// SetFault makes all answers from now on faulty in that way; "": in none.
func (p *PLC) SetFault(name string) error {
	fault := p.faults()[name]
	if name != "" && fault == nil {
		return fmt.Errorf("the PLC directory has no fault called %q, but %s", name, strings.Join(PLCFaults(), ", "))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
	return nil
}

// SetKeyOf makes the directory say that the account has the key of other. The fault "foreign-key"
// of commits signs with that of the account's DID and an x.
func (p *PLC) SetKeyOf(did, other string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keyOf == nil {
		p.keyOf = make(map[string]string)
	}
	p.keyOf[did] = other
}

// Requests is how many requests have come.
func (p *PLC) Requests() int64 { return p.requests.Load() }

// ServeHTTP implements http.Handler.
func (p *PLC) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	p.requests.Add(1)
	did := askedFor(req)
	if !HasKey(did) {
		http.Error(w, `{"message":"DID not registered: `+did+`"}`, http.StatusNotFound)
		return
	}
	p.mu.Lock()
	fault := p.fault
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/did+ld+json")
	if fault != nil {
		fault(w, req)
		return
	}
	_ = json.NewEncoder(w).Encode(p.document(did))
}

// askedFor returns the DID of a request.
func askedFor(req *http.Request) string { return strings.TrimPrefix(req.URL.Path, "/") }

// HasKey reports whether a directory without faults has the account.
func HasKey(did string) bool { return strings.HasPrefix(did, "did:plc:") && len(did) == didLen }

// signer returns the DID whose key the account has.
func (p *PLC) signer(did string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if other, ok := p.keyOf[did]; ok {
		return other
	}
	return did
}

// document returns the DID document of an account.
func (p *PLC) document(did string) map[string]any {
	return map[string]any{
		"@context":           []any{"https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"},
		"id":                 did,
		"alsoKnownAs":        []any{"at://" + did[len("did:plc:"):] + ".example.com"},
		"verificationMethod": verificationMethod(did, p.signer(did)),
		"service":            []any{map[string]any{"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": "https://pds.example.com"}},
	}
}

// verificationMethod says that did has the key of signer.
func verificationMethod(did, signer string) []any {
	key, err := PublicKey(signer)
	if err != nil {
		panic("relaysim: " + err.Error()) // all DIDs have one
	}
	return []any{map[string]any{"id": did + "#atproto", "type": "Multikey", "controller": did, "publicKeyMultibase": key.Multibase()}}
}

// answerSlowly answers after a while.
func (p *PLC) answerSlowly(w http.ResponseWriter, req *http.Request) {
	document := p.document(askedFor(req))
	select {
	case <-req.Context().Done():
	case <-time.After(PLCSlow):
		_ = json.NewEncoder(w).Encode(document)
	}
}

// Export writes the operations that have made the accounts, as GET /export of a directory does.
func (p *PLC) Export(w io.Writer, dids ...string) error {
	b := bufio.NewWriter(w)
	lines := json.NewEncoder(b)
	for _, did := range dids {
		key, err := PublicKey(p.signer(did))
		if err != nil {
			return err
		}
		if err := lines.Encode(map[string]any{
			"did": did, "cid": "bafyreib2rxk3rybpkfq5i5g2d6k4a7xxu5x5n5e5rhpadg2r3msdxdzxke", "nullified": false, "createdAt": "2026-01-01T00:00:00.000Z",
			"operation": map[string]any{
				"type": "plc_operation", "prev": nil, "sig": "", "rotationKeys": []any{key.DIDKey()},
				"verificationMethods": map[string]any{"atproto": key.DIDKey()},
				"alsoKnownAs":         []any{}, "services": map[string]any{},
			},
		}); err != nil {
			return err
		}
	}
	return b.Flush()
}

// writesEndlessly returns what writes text again and again until the client leaves.
func writesEndlessly(text string, every time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		for {
			if _, err := io.WriteString(w, text); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-req.Context().Done():
				return
			case <-time.After(every):
			}
		}
	}
}

// writeHeadersEndlessly writes headers until the client leaves.
func writeHeadersEndlessly(w http.ResponseWriter, _ *http.Request) {
	conn, out, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, err = out.WriteString("HTTP/1.1 200 OK\r\n")
	for err == nil {
		_, err = out.WriteString("X-More: " + strings.Repeat("x", 1000) + "\r\n")
	}
}
