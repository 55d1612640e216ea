package linksapi

import (
	"errors"
	"fmt"
	"net/http"

	"millrace/public/internal/viewapi"
	"millrace/replay/links"
)

// Names of errors that only links have.
const (
	errUnsupportedSubject = "UnsupportedSubject"
	errBuilding           = "LinksNotBuilt"
	errTooManyLinks       = "TooManyLinks"
)

// unsupported is the answer to a subject of which there can be no links.
func unsupported(name, subject string) error {
	return &viewapi.Error{Status: http.StatusBadRequest, Name: errUnsupportedSubject,
		Message: fmt.Sprintf("%s: %.200q is neither a DID nor an AT URI, and links to anything else are not kept", name, subject)}
}

// failure returns the answer to an error of links.
func failure(err error) *viewapi.Error {
	if errors.Is(err, links.ErrTooLarge) {
		return &viewapi.Error{Status: http.StatusUnprocessableEntity, Name: errTooManyLinks,
			Message: "the subject has over a million links: filter by did, or list them with getManyToMany"}
	}
	return nil
}
