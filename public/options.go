package public

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"millrace/dict"
	"millrace/replay"
	"millrace/translate"
)

// Limits of the v1 contract, and of ours.
const (
	maxWantedCollections = 100
	maxWantedDIDs        = 10_000
	maxWantedSubjects    = 10_000 // and as many DIDs of subjects
	maxWantedSources     = 100
	maxHeartbeatSeconds  = 3600
	maxKinds             = 4 // that there are
)

// errInvalidOptions begins errors about the options of a subscriber.
var errInvalidOptions = errors.New("invalid subscriber options")

func invalidOption(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errInvalidOptions, fmt.Sprintf(format, args...))
}

// wants is the part of the options that an options update replaces, by the names it has there.
type wants struct {
	Collections wantedSet `json:"wantedCollections"`
	DIDs        wantedSet `json:"wantedDids"`
	MaxPayload  int       `json:"maxMessageSizeBytes"` // 0: no limit

	// ours
	Subjects    wantedSet `json:"wantedSubjects"`
	SubjectDIDs wantedSet `json:"wantedSubjectDids"`
	Sources     wantedSet `json:"wantedSources"`
	Kinds       wantedSet `json:"wantedKinds"` // of an update; its given says whether it replaces the kinds
}

func newWants() *wants {
	return &wants{
		Collections: wantedSet{limit: maxWantedCollections, what: "collection", form: "an NSID, or a prefix such as app.bsky.graph.*", valid: validCollection},
		DIDs:        wantedSet{limit: maxWantedDIDs, what: "DID", form: "a DID", valid: validDID},
		Subjects:    wantedSet{limit: maxWantedSubjects, what: "subject", form: "a DID or an AT URI", valid: validSubject},
		SubjectDIDs: wantedSet{limit: maxWantedSubjects, what: "subject DID", form: "a DID", valid: validDID},
		Sources:     wantedSet{limit: maxWantedSources, what: "source", form: "<collection>:<path>", valid: validSource},
		Kinds:       wantedSet{limit: maxKinds, what: "kind", form: "a kind of event", valid: validKind},
	}
}

// addByReference adds what commits are to refer to.
func (w *wants) addByReference(q url.Values) {
	w.Subjects.addNonEmpty(q["wantedSubjects"])
	w.SubjectDIDs.addNonEmpty(q["wantedSubjectDids"])
	w.Sources.addNonEmpty(q["wantedSources"])
}

// byReference says whether commits are wanted by what they refer to.
func (w *wants) byReference() bool {
	return len(w.Subjects.members)+len(w.SubjectDIDs.members)+len(w.Sources.members) > 0
}

// options is what one subscriber asked for.
type options struct {
	wants        *wants // nil once the filter is made of it
	cursor       replay.Cursor
	requireHello bool
	dictionary   uint32 // that events are compressed with; 0: they are not

	v2 bool // the wire is Jetstream v2's

	// Ours:
	extended   bool // not with v2
	references bool
	strict     bool
	kinds      replay.KindSet // 0: all but #sync events; options updates replace it
	heartbeat  time.Duration
}

// parseOptions reads a subscriber's request. Its errors are for the client to read.
func parseOptions(r *http.Request) (options, error) {
	q, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return options{}, invalidOption("query string: %v", err)
	}
	o := options{requireHello: q.Get("requireHello") == "true"}
	if wantsJetstreamZstd(r, q) {
		o.dictionary = dict.JetstreamID
	}
	o.wants = newWants()
	// An empty value stands for none at all: "empty = all collections".
	o.wants.Collections.addNonEmpty(q["wantedCollections"])
	o.wants.DIDs.addNonEmpty(q["wantedDids"])
	o.wants.addByReference(q)
	o.wants.MaxPayload = parseMaxMessageSize(q.Get("maxMessageSizeBytes"))
	if err := o.wants.check(); err != nil {
		return options{}, err
	}
	if s := q.Get("cursor"); s != "" {
		if o.cursor, err = replay.ParseCursor(s); err != nil {
			return options{}, invalidOption("%v", err)
		}
	}
	return o, o.parseOwn(q)
}

// parseQuery is url.ParseQuery without its limit of 10,000 parameters, which as many DIDs and a
// cursor exceed. The server's limit on the request line bounds it.
func parseQuery(raw string) (url.Values, error) {
	q := make(url.Values)
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		if strings.Contains(pair, ";") {
			return nil, errors.New("a semicolon does not separate parameters: write &")
		}
		key, value, _ := strings.Cut(pair, "=")
		key, err := url.QueryUnescape(key)
		if err != nil {
			return nil, err
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return nil, err
		}
		q[key] = append(q[key], value)
	}
	return q, nil
}

// parseOwn reads the parameters that Jetstream does not have.
func (o *options) parseOwn(q url.Values) (err error) {
	if o.extended, err = parseSwitch(q, "extended"); err != nil {
		return err
	}
	if o.references, err = parseSwitch(q, "references"); err != nil {
		return err
	}
	if o.references && !o.extended {
		return invalidOption("references=true needs extended=true")
	}
	if o.strict, err = parseSwitch(q, "strict"); err != nil {
		return err
	}
	var kinds []string
	for _, v := range q["wantedKinds"] {
		kinds = append(kinds, strings.FieldsFunc(v, func(r rune) bool { return r == ',' })...)
	}
	if o.kinds, err = parseKinds("wantedKinds", kinds); err != nil {
		return err
	}
	switch id, err := parseDictionaryID(q); {
	case err != nil:
		return err
	case id != 0:
		o.dictionary = id
	}
	o.heartbeat, err = parseHeartbeat(q)
	return err
}

// parseHeartbeat reads heartbeat; 0: none is wanted.
func parseHeartbeat(q url.Values) (time.Duration, error) {
	s := q.Get("heartbeat")
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxHeartbeatSeconds {
		return 0, invalidOption("heartbeat %.40q is not a number of seconds from 1 to %d", s, maxHeartbeatSeconds)
	}
	return time.Duration(n) * time.Second, nil
}

func parseSwitch(q url.Values, name string) (bool, error) {
	switch s := q.Get(name); s {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	default:
		return false, invalidOption("%s %.40q is neither true nor false", name, s)
	}
}

// parseKinds returns the kinds that have the names, on either wire. what is one of them in errors.
func parseKinds(what string, names []string) (set replay.KindSet, err error) {
	all := []translate.Kind{translate.KindCommit, translate.KindIdentity, translate.KindAccount, translate.KindSync}
	for _, name := range names {
		i := slices.IndexFunc(all, func(k translate.Kind) bool { return name == k.String() })
		if i < 0 {
			return 0, invalidOption("%s %.40q is none of commit, identity, account, sync%s", what, name, commaAdvice(name))
		}
		set |= replay.Kinds(all[i])
	}
	return set, nil
}

// parseDictionaryID reads zstdDictionary; 0: there is none.
func parseDictionaryID(q url.Values) (uint32, error) {
	s := q.Get("zstdDictionary")
	if s == "" {
		return 0, nil
	}
	id, err := strconv.ParseUint(s, 10, 32)
	if err != nil || id == 0 {
		return 0, invalidOption("zstdDictionary %.40q is no dictionary ID", s)
	}
	return uint32(id), nil
}

// wantsJetstreamZstd reports whether the request asks for compression as Jetstream v1 has it.
func wantsJetstreamZstd(r *http.Request, q url.Values) bool {
	return q.Get("compress") == "true" || strings.Contains(r.Header.Get("Socket-Encoding"), "zstd")
}

// parseMaxMessageSize takes what is malformed or negative for 0, as v1 does.
func parseMaxMessageSize(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

func (w *wants) check() error {
	for _, s := range []*wantedSet{&w.Collections, &w.DIDs, &w.Subjects, &w.SubjectDIDs, &w.Sources, &w.Kinds} {
		if s.err != nil {
			return s.err
		}
	}
	return nil
}

// update is the envelope of a message from a client. Its payload is read at once, into the sets,
// but whether that failed matters only if the type is options_update.
type update struct {
	Type    string        `json:"type"`
	Payload updatePayload `json:"payload"`
}

type updatePayload struct {
	wants *wants // nil: there is no payload
	err   error
}

// UnmarshalJSON implements json.Unmarshaler. It never fails: the error is kept.
func (p *updatePayload) UnmarshalJSON(data []byte) error {
	p.wants = newWants()
	p.err = json.Unmarshal(data, p.wants)
	p.wants.MaxPayload = max(p.wants.MaxPayload, 0)
	return nil
}

// parseUpdate reads a text message from a client. It returns nil, nil for messages that mean
// nothing to us. Nothing of the result refers to data.
func parseUpdate(data []byte) (*wants, error) {
	var m update
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("failed to unmarshal subscriber sourced message: %w", err)
	}
	if m.Type != "options_update" {
		return nil, nil
	}
	if m.Payload.wants == nil {
		return nil, errors.New("failed to unmarshal subscriber options update: there is no payload")
	}
	if err := m.Payload.err; err != nil {
		return nil, fmt.Errorf("failed to unmarshal subscriber options update: %w", err)
	}
	if err := m.Payload.wants.check(); err != nil {
		return nil, fmt.Errorf("failed to parse subscriber options: %w", err)
	}
	return m.Payload.wants, nil
}

// wantedSet is a set of collections, DIDs or others in which duplicates cost nothing. A message of
// 10 MB makes no more of it than its limit.
type wantedSet struct {
	limit int
	what  string
	form  string // of a member
	valid func(string) bool

	given   bool // by a message, empty or not
	members []string
	seen    map[string]struct{}
	err     error // the first thing that was wrong
}

// commaAdvice says what to do about a value that is meant as several.
func commaAdvice(v string) string {
	if !strings.Contains(v, ",") {
		return ""
	}
	return "; commas do not separate values: repeat the parameter for each, or in JSON the string"
}

func validDID(s string) bool {
	_, err := syntax.ParseDID(s)
	return err == nil
}

func validSubject(s string) bool {
	_, err := syntax.ParseATURI(s)
	return err == nil || validDID(s)
}

func validKind(s string) bool {
	_, err := parseKinds("", []string{s})
	return err == nil
}

// validSource accepts an NSID, ':', and a path as translate.Reference has it.
func validSource(s string) bool {
	collection, path, ok := strings.Cut(s, ":")
	_, err := syntax.ParseNSID(collection)
	return ok && err == nil && path != "" && path[0] != '.' && len(path) <= translate.MaxReferencePathBytes
}

// maxPrefixBytes bounds what is taken as a prefix: no NSID is longer.
const maxPrefixBytes = 317

// validCollection accepts exact NSIDs, and anything that ends in ".*" as a prefix.
func validCollection(s string) bool {
	if strings.HasSuffix(s, ".*") {
		return len(s) <= maxPrefixBytes+1
	}
	_, err := syntax.ParseNSID(s)
	return err == nil
}

func (s *wantedSet) addNonEmpty(values []string) {
	for _, v := range values {
		if v != "" {
			s.add(strings.Clone(v)) // lest it keep the whole query
		}
	}
}

// add adds v, which it keeps.
func (s *wantedSet) add(v string) {
	if s.err != nil {
		return
	}
	if _, ok := s.seen[v]; ok {
		return
	}
	if !s.valid(v) {
		s.err = invalidOption("invalid %s: %.80q is not %s%s", s.what, v, s.form, commaAdvice(v))
		return
	}
	if len(s.members) == s.limit {
		s.err = invalidOption("too many wanted %ss: at most %d", s.what, s.limit)
		return
	}
	if s.seen == nil {
		s.seen = make(map[string]struct{})
	}
	s.seen[v] = struct{}{}
	s.members = append(s.members, v)
}

// UnmarshalJSON implements json.Unmarshaler for an array of strings, or null. It fails only if data
// is something else; what is wrong with a member is in s.err.
func (s *wantedSet) UnmarshalJSON(data []byte) error {
	// of two arrays under one name the last counts
	s.given, s.members, s.seen, s.err = true, nil, nil, nil
	if data[0] == 'n' {
		return nil
	}
	if data[0] != '[' {
		return fmt.Errorf("the wanted %ss are not an array", s.what)
	}
	// data is valid JSON, so that only strings need a closer look.
	for i := 1; s.err == nil; {
		switch c := data[i]; c {
		case ' ', '\t', '\r', '\n', ',':
			i++
		case ']':
			return nil
		case '"':
			end, escaped := i+1, false
			for ; data[end] != '"'; end++ {
				if data[end] == '\\' {
					escaped = true
					end++
				}
			}
			if err := s.addLiteral(data[i:end+1], escaped); err != nil {
				return err
			}
			i = end + 1
		default:
			return fmt.Errorf("a wanted %s is not a string", s.what)
		}
	}
	return nil
}

// addLiteral adds a JSON string, quotes and all.
func (s *wantedSet) addLiteral(literal []byte, escaped bool) error {
	if !escaped {
		raw := literal[1 : len(literal)-1]
		if _, ok := s.seen[string(raw)]; !ok {
			s.add(string(raw))
		}
		return nil
	}
	var v string
	if err := json.Unmarshal(literal, &v); err != nil {
		return err
	}
	s.add(v)
	return nil
}
