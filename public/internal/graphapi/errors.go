package graphapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"millrace/public/internal/viewapi"
	"millrace/replay/graph"
	"millrace/replay/links"
)

// Names of errors that viewapi does not have.
const (
	errBuilding    = "GraphNotBuilt"
	errLinks       = "LinksNotBuilt"
	errUnsupported = "UnsupportedSet"
	errTooCostly   = "TooCostly"
)

func unsupported(format string, args ...any) error {
	return &viewapi.Error{Status: http.StatusBadRequest, Name: errUnsupported, Message: fmt.Sprintf(format, args...)}
}

func tooCostly(format string, args ...any) *viewapi.Error {
	return &viewapi.Error{Status: http.StatusUnprocessableEntity, Name: errTooCostly, Message: fmt.Sprintf(format, args...)}
}

// failure returns the answer to an error of the graph or of links.
func failure(err error) *viewapi.Error {
	switch {
	case errors.Is(err, graph.ErrTooCostly):
		return tooCostly("%s", strings.TrimPrefix(err.Error(), "graph: "))
	case errors.Is(err, graph.ErrRenewed):
		return viewapi.Invalid("cursor: the graph was built anew since the cursor was made: begin again without a cursor")
	case errors.Is(err, links.ErrTooLarge):
		return tooCostly("a set of links is too large: %d records are allowed", maxLinks)
	case errors.Is(err, graph.ErrClosed):
		return viewapi.ErrStopping
	}
	return nil
}
