package relaysim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// action is something that an operator can make happen.
type action struct {
	name string
	help string // its parameters and what it does
	// run does it, between two frames.
	run func(r *Relay, q url.Values) (map[string]any, error)
}

// routeAdmin adds the admin endpoints.
func (r *Relay) routeAdmin(mux *http.ServeMux) {
	mux.HandleFunc("GET /admin/{$}", func(w http.ResponseWriter, _ *http.Request) {
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		defer t.Flush()
		for _, a := range actions() {
			fmt.Fprintf(t, "POST /admin/%s\t%s\n", a.name, a.help)
		}
		fmt.Fprintf(t, "GET /admin/status\twhere the stream is\n")
	})
	mux.HandleFunc("GET /admin/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, r.status()) })
	for _, a := range actions() {
		mux.HandleFunc("POST /admin/"+a.name, func(w http.ResponseWriter, req *http.Request) {
			if r.cfg.verbatim() && slices.Contains([]string{"jump", "again", "restart-numbering", "inject"}, a.name) {
				http.Error(w, a.name+": not while frames are sent exactly as captured", http.StatusBadRequest)
				return
			}
			var result map[string]any
			err := r.producer.do(req.Context(), func() (err error) { result, err = a.run(r, req.URL.Query()); return err })
			if err != nil {
				http.Error(w, a.name+": "+err.Error(), http.StatusBadRequest)
				return
			}
			answer(w, result)
		})
	}
}

func answer(w http.ResponseWriter, v map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// status says where the stream is.
func (r *Relay) status() map[string]any {
	n := r.producer.current.Load()
	return map[string]any{"epoch": n.epoch, "seq": n.win.head(), "messages": r.producer.shown.Load()}
}

// param reads a whole number from q.
func param(q url.Values, name string, otherwise, least, most int64) (int64, error) {
	s := q.Get(name)
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s=%q is not a number from %d to %d", name, s, least, most)
	}
	return n, nil
}

// paramDuration reads from q for how long something is to be; a second if that is not said.
func paramDuration(q url.Values) (time.Duration, error) {
	s := cmp.Or(q.Get("for"), "1s")
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > time.Hour {
		return 0, fmt.Errorf("for=%q is not a duration up to an hour, like 500ms", s)
	}
	return d, nil
}

// lasting makes an action with a duration for a parameter.
func lasting(name, help string, run func(r *Relay, d time.Duration)) action {
	return action{name: name, help: help, run: func(r *Relay, q url.Values) (map[string]any, error) {
		d, err := paramDuration(q)
		if err != nil {
			return nil, err
		}
		run(r, d)
		return nil, nil
	}}
}

// number makes an action with one number for a parameter.
func number(name, help, parameter string, otherwise, most int64, run func(r *Relay, n int64) (map[string]any, error)) action {
	return action{name: name, help: help, run: func(r *Relay, q url.Values) (map[string]any, error) {
		n, err := param(q, parameter, otherwise, 0, most)
		if err != nil {
			return nil, err
		}
		return run(r, n)
	}}
}
