package public

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"millrace/replay"
	"millrace/translate"
)

// firstTimeCursor is the least cursor of v2's wire that is Unix microseconds and no seq.
const firstTimeCursor = 1e15

// parseV2Options reads a request of a client of Jetstream v2. Of several mistakes it reports the
// one that v2 checks first. Limits count what was sent, before duplicates are dropped.
func (s *Server) parseV2Options(r *http.Request) (options, error) {
	if s.isClosing() {
		return options{}, unavailable(rejectShutdown, "shutting down")
	}
	q, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return options{}, invalidOption("query string: %v", err)
	}
	o := options{v2: true, wants: newV2Wants()}
	if wantsJetstreamZstd(r, q) {
		return o, invalidOption("compress=true and Socket-Encoding: zstd are for /subscribe only: use zstdDictionary=<id>, with the dictionary of getZstdDictionary")
	}
	if o.dictionary, err = parseDictionaryID(q); err != nil {
		return o, err
	}
	if _, ok := s.cfg.Dictionaries.Get(o.dictionary); !ok && o.dictionary != 0 {
		return o, badRequest("UnknownZstdDictionary",
			fmt.Errorf("unknown zstd dictionary %d: the current one is %d, see getZstdDictionary", o.dictionary, s.cfg.Dictionaries.Stored().ID()))
	}
	if err := o.parseV2Filters(q); err != nil {
		return o, err
	}
	if err := o.parseV2Own(q); err != nil {
		return o, err
	}
	if err := s.checkReferences(&o); err != nil {
		return o, err
	}
	o.cursor, err = parseV2Cursor(q.Get("cursor"))
	return o, err
}

// parseV2Filters reads which events are wanted.
func (o *options) parseV2Filters(q url.Values) (err error) {
	for _, foreign := range []struct{ name, instead string }{
		{"wantedDids", "take dids"}, {"wantedCollections", "take collections"}, {"requireHello", "nothing is read from clients here"},
	} {
		if q.Has(foreign.name) {
			return invalidOption("%s is of /subscribe: %s", foreign.name, foreign.instead)
		}
	}
	if v, ok := q["maxMessageSizeBytes"]; ok {
		n, err := strconv.ParseUint(v[0], 10, 32)
		if err != nil || len(v) > 1 {
			return invalidOption("maxMessageSizeBytes must be one number from 0 to 4294967295")
		}
		o.wants.MaxPayload = int(n)
	}
	o.kinds, err = o.wants.addV2(q["kinds"], q["dids"], q["collections"])
	return err
}

// parseV2Own reads the parameters that Jetstream v2 does not have, and so ignores.
func (o *options) parseV2Own(q url.Values) (err error) {
	o.wants.addByReference(q)
	if err := o.wants.check(); err != nil {
		return err
	}
	if o.references, err = parseSwitch(q, "references"); err != nil {
		return err
	}
	o.heartbeat, err = parseHeartbeat(q)
	return err
}

func newV2Wants() *wants {
	w := newWants()
	w.Collections.valid = validV2Collection
	return w
}

// addV2 adds to w, which has none, what v2's wire or planSnapshot asks for.
func (w *wants) addV2(kinds, dids, collections []string) (replay.KindSet, error) {
	for _, p := range []struct {
		what      string
		n, atMost int
	}{
		{"kinds", len(kinds), maxKinds}, {"dids", len(dids), maxWantedDIDs}, {"collections", len(collections), maxWantedCollections},
	} {
		if p.n > p.atMost {
			return 0, invalidOption("too many %s: %d, at most %d are taken", p.what, p.n, p.atMost)
		}
	}
	set, err := parseKinds("kind", kinds)
	if err != nil {
		return 0, err
	}
	set = cmp.Or(set, replay.AllKinds)
	for _, d := range dids {
		w.DIDs.add(strings.Clone(d)) // so that it does not keep the whole query
	}
	for _, c := range collections {
		w.Collections.add(strings.Clone(c))
	}
	if err := w.check(); err != nil {
		return 0, err
	}
	if len(collections) > 0 && !set.Has(translate.KindCommit) {
		return 0, invalidOption("collections are given, but kinds leave out commit")
	}
	return set, nil
}

// validV2Collection accepts NSIDs, and prefixes head.* where head.x would be an NSID.
func validV2Collection(s string) bool {
	if head, ok := strings.CutSuffix(s, ".*"); ok {
		s = head + ".x"
	}
	_, err := syntax.ParseNSID(s)
	return err == nil
}

// parseV2Cursor reads a seq, or Unix microseconds. 0 is the oldest event.
func parseV2Cursor(s string) (replay.Cursor, error) {
	if s == "" {
		return replay.Cursor{}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil || n < 0:
		return replay.Cursor{}, invalidOption("cursor %.40q is neither a seq nor Unix microseconds", s)
	case n == 0 || n >= firstTimeCursor:
		return replay.TimeCursor(n), nil
	}
	return replay.SeqCursor(n), nil
}
