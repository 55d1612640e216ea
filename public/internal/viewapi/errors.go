package viewapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
)

// Names of errors in answers.
const (
	ErrInvalidRequest = "InvalidRequest"
	ErrNotReached     = "PositionNotReached"
	ErrUnavailable    = "Unavailable"
	ErrInternal       = "InternalServerError"
)

// Error is the answer to a request that fails, in XRPC's form.
type Error struct {
	Status  int    `json:"-"`
	Name    string `json:"error"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Name + ": " + e.Message }

// ServeHTTP answers a request with e.
func (e *Error) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if e.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	var body bytes.Buffer
	out := json.NewEncoder(&body)
	out.SetEscapeHTML(false) // for people
	_ = out.Encode(e)        // strings are always encoded
	WriteJSON(w, e.Status, body.Bytes())
}

// Invalid is the answer to a request that is wrong.
func Invalid(format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, ErrInvalidRequest, fmt.Sprintf(format, args...)}
}

// NotBuilt is the answer to a request for a view that is being built. of is its noun and verb.
func NotBuilt(name, of string, progress fmt.Stringer) *Error {
	return &Error{http.StatusServiceUnavailable, name, fmt.Sprintf("the %s not complete yet, %v: try again later", of, progress)}
}

// ErrStopping is the answer to a request that a stop of the server ends.
var ErrStopping = Unavailable("the server is stopping: try again in five seconds")

// Unavailable is the answer to a request that may be made again.
func Unavailable(message string) *Error {
	return &Error{http.StatusServiceUnavailable, ErrUnavailable, message}
}
