package public

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"millrace/intern"
	"millrace/public/internal/admission"
	"millrace/public/internal/viewapi"
)

const (
	// maxLookups is how many strings and UIDs together one POST /uids may name.
	maxLookups = 1000
	// maxLookupBytes bounds its body: 2 KiB for each of them, of which an AT URI seldom needs a
	// tenth.
	maxLookupBytes = 2 << 20
	// batchesAtOnce is how many bodies are read, and held, at the same time.
	batchesAtOnce = 8
	// lookupsAtOnce is how many requests read the UID store at the same time.
	lookupsAtOnce = 8
	// lookupTimeout is how long one may take, waiting for its turn included.
	lookupTimeout = 10 * time.Second
)

// UIDs is the UID store as look-ups and filters need it; *intern.Interner is one. A look-up never
// gives a UID.
type UIDs interface {
	viewapi.UIDs
	// Await calls found with the UIDs of the strings, before an event can have them.
	Await(ctx context.Context, strings []string, found func(uid uint64)) (*intern.Waiting, error)
}

// uidJSON is one known pair. UIDs are strings: JavaScript has no 64-bit integers.
type uidJSON struct {
	UID string `json:"uid"`
	DID string `json:"did,omitempty"`
	URI string `json:"uri,omitempty"`
}

func newUIDJSON(uid uint64, s string) uidJSON {
	pair := uidJSON{UID: strconv.FormatUint(uid, 10), DID: s}
	if isURI(s) {
		pair.DID, pair.URI = "", s
	}
	return pair
}

func isURI(s string) bool { return strings.HasPrefix(s, "at://") }

// lookupAPI answers look-ups of UIDs over HTTP.
type lookupAPI struct {
	uids        UIDs // nil: interning is off
	log         *slog.Logger
	admission   *admission.Controller
	bodyTimeout time.Duration  // for the body of a request
	lookups     chan struct{}  // a token for each look-up under way
	batches     chan struct{}  // a token for each POST /uids, or large planSnapshot, under way
	failures    rate.Sometimes // when a failure is logged
}

func newLookupAPI(cfg *Config, a *admission.Controller, bodyTimeout time.Duration) *lookupAPI {
	return &lookupAPI{
		uids: cfg.UIDs, log: cfg.Logger, admission: a, bodyTimeout: bodyTimeout,
		lookups: make(chan struct{}, lookupsAtOnce), batches: make(chan struct{}, batchesAtOnce),
		failures: rate.Sometimes{Interval: logEvery},
	}
}

// lookup is one request's look-ups in the UID store.
type lookup struct {
	strings []string
	uids    []uint64
	// found: UIDs of strings, 0 if unknown; strings of uids, "" if unknown.
	foundUIDs    []uint64
	foundStrings []string
}

// answer makes a handler of f, which returns what to answer with as JSON. Without a UID store the
// answer is 404.
func (a *lookupAPI) answer(f func(w http.ResponseWriter, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var answer any
		err := notFound("", "this server gives no UIDs (--intern=off)")
		if a.uids != nil {
			answer, err = f(w, r)
		}
		if err != nil {
			refusalOf(err).write(w)
			return
		}
		writeJSON(w, http.StatusOK, answer)
	}
}

// run does l.
func (a *lookupAPI) run(ctx context.Context, l *lookup) error {
	l.foundUIDs = make([]uint64, len(l.strings))
	l.foundStrings = make([]string, len(l.uids))
	err := a.inTurn(ctx, func(ctx context.Context) error {
		if err := a.uids.LookupStrings(ctx, l.strings, l.foundUIDs); err != nil {
			return err
		}
		return a.uids.LookupUIDs(ctx, l.uids, l.foundStrings)
	})
	if invalid, ok := errors.AsType[*intern.InvalidError](err); ok {
		return fmt.Errorf("%.200q is %w", l.strings[invalid.Index], invalid)
	}
	return err
}

var (
	errUIDStore = errors.New("the UID store does not answer")
	errNoTurn   = fmt.Errorf("%w: too many look-ups at once: try again in five seconds", errUIDStore)
)

// inTurn calls f, which reads the UID store, once fewer than lookupsAtOnce others do. It returns
// f's error if that is about what is looked up, else errUIDStore, or errNoTurn.
func (a *lookupAPI) inTurn(client context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(client, lookupTimeout)
	defer cancel()
	select {
	case a.lookups <- struct{}{}:
		defer func() { <-a.lookups }()
	case <-ctx.Done():
		return errNoTurn
	}
	err := f(ctx)
	if _, invalid := errors.AsType[*intern.InvalidError](err); err == nil || invalid {
		return err
	}
	if client.Err() == nil { // else the client is gone
		a.failures.Do(func() { a.log.Warn("UID look-up failed", "err", err) })
	}
	return errUIDStore
}

// takeBatchTurn waits for one of batches, before any of the body is read: waiting takes no memory.
// It first waits until no other message of the address is on its way: one that sends slowly takes
// one of batches at most. The caller calls done, unless there is an error.
func (a *lookupAPI) takeBatchTurn(r *http.Request) (done func(), err error) {
	refused := unavailable("", "too many such requests at once: try again in five seconds")
	ctx, cancel := context.WithTimeout(r.Context(), lookupTimeout)
	defer cancel()
	client, _ := a.admission.ClientOf(r)
	claim, err := a.admission.ClaimMessage(client, ctx.Done(), lookupTimeout)
	if err != nil {
		return nil, refused
	}
	select {
	case a.batches <- struct{}{}:
		return func() { <-a.batches; claim.Release() }, nil
	case <-ctx.Done():
		claim.Release()
		return nil, refused
	}
}

// handleUIDOf answers GET /uid?did=… and /uid?uri=….
func (a *lookupAPI) handleUIDOf(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	l := lookup{strings: append(q["did"], q["uri"]...)}
	if len(l.strings) != 1 {
		return nil, errors.New("ask for one of /uid?did=<DID>, /uid?uri=<AT URI> and /uid/<UID>")
	}
	if isURI(l.strings[0]) != q.Has("uri") {
		return nil, fmt.Errorf("%.200q: a DID is asked for with did=, an AT URI (at://…) with uri=", l.strings[0])
	}
	if err := a.run(r.Context(), &l); err != nil {
		return nil, err
	}
	if l.foundUIDs[0] == 0 {
		return nil, notFound("", "%.200q has no UID", l.strings[0])
	}
	return newUIDJSON(l.foundUIDs[0], l.strings[0]), nil
}

// handleUID answers GET /uid/{uid}.
func (a *lookupAPI) handleUID(_ http.ResponseWriter, r *http.Request) (any, error) {
	uid, err := parseUID(r.PathValue("uid"))
	if err != nil {
		return nil, err
	}
	l := lookup{uids: []uint64{uid}}
	if err := a.run(r.Context(), &l); err != nil {
		return nil, err
	}
	if l.foundStrings[0] == "" {
		return nil, notFound("", "UID %d stands for nothing", uid)
	}
	return newUIDJSON(uid, l.foundStrings[0]), nil
}

func parseUID(s string) (uint64, error) {
	uid, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(uid, 10) != s {
		return 0, fmt.Errorf("%.40q is no UID: it is a decimal number of 64 bits", s)
	}
	return uid, nil
}

// handleUIDs answers POST /uids: {"strings":[…],"uids":["…"]} is answered with two objects of the
// same names, that map each to what it stands for, null if unknown.
func (a *lookupAPI) handleUIDs(w http.ResponseWriter, r *http.Request) (any, error) {
	done, err := a.takeBatchTurn(r)
	if err != nil {
		return nil, err
	}
	defer done()
	var request batch
	err = a.readBody(w, r, maxLookupBytes, func(body io.Reader) (err error) {
		if request, err = decodeBatch(body); err != nil && !errors.Is(err, errManyLookups) {
			err = fmt.Errorf(`the body is not {"strings":["<DID or AT URI>",…],"uids":["<UID>",…]}: %w`, err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	l := lookup{strings: request.strings}
	for _, s := range request.uids {
		uid, err := parseUID(s)
		if err != nil {
			return nil, err
		}
		l.uids = append(l.uids, uid)
	}
	if err := a.run(r.Context(), &l); err != nil {
		return nil, err
	}
	answer := struct {
		Strings map[string]*string `json:"strings"`
		UIDs    map[string]*string `json:"uids"`
	}{make(map[string]*string, len(l.strings)), make(map[string]*string, len(l.uids))}
	for i, str := range l.strings {
		answer.Strings[str] = nil
		if uid := l.foundUIDs[i]; uid != 0 {
			answer.Strings[str] = new(strconv.FormatUint(uid, 10))
		}
	}
	for i, uid := range request.uids {
		answer.UIDs[uid] = nil
		if found := l.foundStrings[i]; found != "" {
			answer.UIDs[uid] = &found
		}
	}
	return answer, nil
}

// batch is the body of a POST /uids.
type batch struct {
	strings []string
	uids    []string
}

// readBody has the body read, which has maxBytes at most and arrives within bodyTimeout.
func (a *lookupAPI) readBody(w http.ResponseWriter, r *http.Request, maxBytes int64, read func(io.Reader) error) error {
	// A client that sends little by little must not keep its turn. Tests' recorders have no
	// deadlines. If the connection is gone, reading fails.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.bodyTimeout))
	err := read(http.MaxBytesReader(w, r.Body, maxBytes))
	var tooLarge *http.MaxBytesError
	var netErr net.Error
	switch {
	case errors.As(err, &tooLarge):
		return &refusal{
			status: http.StatusRequestEntityTooLarge, name: "PayloadTooLarge",
			text: fmt.Sprintf("the body has more than %d bytes", maxBytes),
		}
	case errors.As(err, &netErr) && netErr.Timeout():
		return &refusal{
			status: http.StatusRequestTimeout, name: "RequestTimeout",
			text: fmt.Sprintf("the body did not arrive within %v", a.bodyTimeout),
		}
	}
	return err
}

var errManyLookups = fmt.Errorf("more than %d look-ups at once", maxLookups)

// decodeBatch reads a batch token by token, up to the first look-up that is one too many. Nothing
// but white space may follow the object.
func decodeBatch(r io.Reader) (b batch, err error) {
	d := json.NewDecoder(r)
	if err := wantDelim(d, '{'); err != nil {
		return b, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return b, err
		}
		switch name {
		case "strings":
			err = b.decodeList(d, &b.strings)
		case "uids":
			err = b.decodeList(d, &b.uids)
		default:
			err = fmt.Errorf("unknown member %.40q", name)
		}
		if err != nil {
			return b, err
		}
	}
	if err := wantDelim(d, '}'); err != nil {
		return b, err
	}
	switch t, err := d.Token(); {
	case errors.Is(err, io.EOF):
		return b, nil
	case err != nil:
		return b, err
	default:
		return b, fmt.Errorf("%.40q follows the object", fmt.Sprint(t))
	}
}

// decodeList appends an array of strings, or null, to list, which is one of b's.
func (b *batch) decodeList(d *json.Decoder, list *[]string) error {
	switch t, err := d.Token(); {
	case err != nil:
		return err
	case t == nil:
		return nil
	case t != json.Delim('['):
		return errors.New("an array of strings is missing")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		entry, ok := t.(string)
		if !ok {
			return errors.New("an array has a member that is no string")
		}
		if len(b.strings)+len(b.uids) == maxLookups {
			return errManyLookups
		}
		*list = append(*list, entry)
	}
	return wantDelim(d, ']')
}

func wantDelim(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t != want {
		return fmt.Errorf("%q is missing", want.String())
	}
	return nil
}
