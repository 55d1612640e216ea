package linksapi

import (
	"fmt"
	"net/http"
)

// Names of errors in answers.
const (
	errInvalidRequest     = "InvalidRequest"
	errUnsupportedSubject = "UnsupportedSubject"
	errNotReached         = "PositionNotReached"
	errBuilding           = "LinksNotBuilt"
	errTooManyLinks       = "TooManyLinks"
	errUnavailable        = "Unavailable"
	errInternal           = "InternalServerError"
)

// apiError is an answer that is none: XRPC's form of an error.
type apiError struct {
	status  int
	Name    string `json:"error"`
	Message string `json:"message"`
}

func (e *apiError) Error() string { return e.Name + ": " + e.Message }

func invalidRequest(format string, args ...any) *apiError {
	return &apiError{http.StatusBadRequest, errInvalidRequest, fmt.Sprintf(format, args...)}
}

// unsupported is the answer to a subject of which there can be no links.
func unsupported(name, subject string) *apiError {
	return &apiError{http.StatusBadRequest, errUnsupportedSubject,
		fmt.Sprintf("%s: %.200q is neither a DID nor an AT URI, and links to anything else are not kept", name, subject)}
}

func unavailable(message string) *apiError {
	return &apiError{http.StatusServiceUnavailable, errUnavailable, message}
}
