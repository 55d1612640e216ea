package public

import "net/http"

// Health is what the process knows of itself. It is ready if all checks are OK.
type Health struct {
	Checks []Check
}

// Check is one part of Health.
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
	answer := struct {
		Ready  bool    `json:"ready"`
		Checks []Check `json:"checks"`
	}{Ready: true}
	answer.Checks = append(answer.Checks, s.cfg.Health().Checks...)
	answer.Checks = append(answer.Checks, Check{Name: "serving", OK: !s.isClosing()})
	status := http.StatusOK
	for _, c := range answer.Checks {
		if !c.OK {
			answer.Ready = false
			status = http.StatusServiceUnavailable
		}
	}
	writeJSON(w, s.log, status, answer)
}
