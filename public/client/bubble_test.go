package client_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"millrace/consume/relaysim/pipenet"
	"millrace/public/client"
)

// bubble runs a test on a clock of its own, which stands still while a goroutine works. Its servers
// are those of servePipes.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// servePipes serves a handler in a bubble, and makes a client of it.
func servePipes(t *testing.T, h http.Handler, cfg client.Config) *client.Client {
	t.Helper()
	srv, l := pipenet.NewServer(h)
	srv.Start()
	t.Cleanup(srv.Close)
	cfg.URL = srv.URL
	c := newClient(t, cfg)
	c.DialBy(l.Dial)
	return c
}
