package linksapi

import (
	"errors"
	"fmt"
	"net/http"

	"millrace/public/internal/viewapi"
	"millrace/replay/links"
)

// view returns links as they are, which is at or after q.at, with the headers that say so.
func (a *API) view(h http.Header, q *query) (links.View, error) {
	v, err := a.cfg.Links.View()
	if errors.Is(err, links.ErrBuilding) {
		return nil, &viewapi.Error{Status: http.StatusServiceUnavailable, Name: errBuilding,
			Message: fmt.Sprintf("the links are not complete yet, %v: try again later", a.cfg.Links.Progress())}
	}
	if err != nil {
		return nil, err
	}
	err = a.Reached(h, &q.at, viewapi.View{Since: a.cfg.Links.Since(), Position: v.Position(), Inexact: a.cfg.Links.InexactSince()})
	if err != nil {
		return nil, errors.Join(v.Close(), err)
	}
	return v, nil
}
