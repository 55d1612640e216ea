package public

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"millrace/public/internal/viewapi"
	"millrace/replay"
)

// v2Prefix begins the paths of Jetstream v2's endpoints; the method follows.
const v2Prefix = "/xrpc/network.bsky.jetstream."

// v2TimeLayout is how times are written.
const v2TimeLayout = "2006-01-02T15:04:05.000000Z"

// v2Subprotocol is echoed to clients that offer it.
const v2Subprotocol = "xrpc.v1.json"

// maxV2ErrorBytes bounds the body of an error. The client of Jetstream v2 reads no more. It takes
// an error that is cut off for a temporary one, and tries again.
const maxV2ErrorBytes = 1024

// Names of errors, as v2's clients know them.
const (
	v2InvalidRequest = "InvalidRequest"
	v2CursorTooOld   = "CursorTooOld"
)

// withV2 serves v2's endpoints, and the others with next.
func (s *Server) withV2(next http.Handler) http.Handler {
	type endpoint struct {
		method string
		handle func(http.ResponseWriter, *http.Request) error
	}
	endpoints := map[string]endpoint{
		"subscribeEvents":   {http.MethodGet, s.handleSubscribeEvents},
		"getZstdDictionary": {http.MethodGet, s.handleZstdDictionary},
		"planSnapshot":      {http.MethodPost, s.handlePlanSnapshot},
		"listSegments":      {http.MethodGet, handleListSegments},
		"getSegment":        {http.MethodGet, handleGetSegment},
		"getBlock":          {http.MethodGet, handleGetBlock},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.URL.Path, v2Prefix)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		var err error
		switch e, known := endpoints[name]; {
		case !known:
			err = &refusal{status: http.StatusNotImplemented, name: "MethodNotImplemented", text: "this server has no such method"}
		case r.Method != e.method && (r.Method != http.MethodHead || e.method != http.MethodGet):
			w.Header().Set("Allow", strings.Replace(e.method, http.MethodGet, "GET, HEAD", 1))
			err = &refusal{status: http.StatusMethodNotAllowed, name: "MethodNotAllowed", text: "this method takes " + e.method}
		default:
			err = e.handle(w, r)
		}
		if err != nil {
			refusalOf(err).writeV2(w)
		}
	})
}

// writeV2 answers as v2's endpoints do, with the text cut to what fits.
func (f *refusal) writeV2(w http.ResponseWriter) {
	f.setRetryAfter(w)
	name, message := f.name, f.text
	if name == "" {
		switch f.status {
		case http.StatusTooManyRequests:
			name = "RateLimitExceeded"
		case http.StatusServiceUnavailable:
			name = "ServiceUnavailable"
		default:
			name = v2InvalidRequest
		}
	}
	var body []byte
	for {
		body, _ = json.Marshal(&viewapi.Error{Name: name, Message: message}) // strings always can
		if len(body) <= maxV2ErrorBytes {
			break
		}
		message = cutAt(message, len(message)*3/4)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_, _ = w.Write(body) // the client may be gone
}

func (s *Server) handleSubscribeEvents(w http.ResponseWriter, r *http.Request) error {
	s.subscribe(w, r, s.parseV2Options, (*refusal).writeV2)
	return nil
}

// refuseV2Handshake answers a request for subscribeEvents that is no websocket handshake.
func refuseV2Handshake(w http.ResponseWriter, r *http.Request, status int, reason error) {
	if !websocket.IsWebSocketUpgrade(r) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		status, reason = http.StatusUpgradeRequired, errors.New("this method is a websocket: send an upgrade request")
	}
	(&refusal{status: status, text: reason.Error()}).writeV2(w)
}

// refusalOfReader returns the answer to a request for whose cursor there is no reader.
func (o *options) refusalOfReader(err error) error {
	switch {
	case errors.Is(err, replay.ErrUnknownStream):
		return invalidOption("cursor %s: %v", o.cursor, err)
	case errors.Is(err, replay.ErrTooOld):
		return badRequest(v2CursorTooOld, err)
	case errors.Is(err, replay.ErrV2Seqs): // a permanent error: v2's client tries others again
		return err
	}
	return unavailable(rejectShutdown, "the server cannot read its log: try again later")
}

// v2Message begins a message of v2's wire; a "}}" ends it.
const v2Message = `{"$type":"message","payload":{"$type":"network.bsky.jetstream.subscribeEvents#`

// appendV2Info appends an #info. name and text must need no escaping in JSON.
func (m *messages) appendV2Info(dst []byte, name, text string) []byte {
	return m.append(dst, []byte(v2Message+`info","message":"`+text+`","name":"`+name+`"}}`))
}

// v2OwnMessage begins a message that is ours, of a type that v2's clients do not know. So they drop
// it. A "}}" ends it.
const v2OwnMessage = `{"$type":"message","payload":{"$type":"millrace#`

// appendV2Point appends a message of ours about the log up to a point, as far as that is known.
func (m *messages) appendV2Point(dst []byte, name string, through replay.Point) []byte {
	p := append([]byte(nil), v2OwnMessage+name+`"`...)
	if through.Position.Seq != 0 {
		p = strconv.AppendInt(append(p, `,"seq":`...), m.v2Seq(through.Position), 10)
	}
	if through.TimeUS != 0 {
		p = time.UnixMicro(through.TimeUS).UTC().AppendFormat(append(p, `,"time":"`...), v2TimeLayout+`"`)
	}
	return m.append(dst, append(p, '}', '}'))
}

// appendV2Error appends an error frame, after which the connection ends. Nothing in
// its strings needs escaping.
func (m *messages) appendV2Error(dst []byte, name, text string) []byte {
	return m.append(dst, []byte(`{"$type":"error","error":"`+name+`","message":"`+text+`"}`))
}
