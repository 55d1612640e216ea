package public

import (
	"net/http"
	"slices"
)

// Check is something that the process knows of itself. It is ready if all its checks are OK.
type Check struct {
	Name   string `json:"name"` // snake_case
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // for people
}

func (s *Server) handleHealthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Write([]byte("ok\n"))
}

func (s *Server) handleReadyz(w http.ResponseWriter, _ *http.Request) {
	answer, status := s.readiness(), http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, answer)
}

// readyJSON is the answer of /readyz, and part of that of /status.
type readyJSON struct {
	Ready  bool    `json:"ready"`
	Checks []Check `json:"checks"`
}

func (s *Server) readiness() readyJSON {
	checks := append(slices.Clip(s.cfg.Health()), Check{Name: "serving", OK: !s.isClosing()})
	return readyJSON{!slices.ContainsFunc(checks, func(c Check) bool { return !c.OK }), checks}
}
