package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"time"
)

// checkJetstream says what is wrong with -jetstream before minutes are spent, and makes it a path
// from the root.
func checkJetstream(program *string) (err error) {
	if *program == "" {
		return nil
	}
	if *program, err = filepath.Abs(*program); err == nil {
		_, err = exec.LookPath(*program)
	}
	if err != nil {
		return fmt.Errorf("-jetstream: this is no program of a Jetstream v1 server: %w", err)
	}
	return nil
}

// serveOriginal starts Jetstream v1 and returns where to subscribe. It has its defaults, but lets a
// subscriber have all there is.
func (p *cellParts) serveOriginal(ctx context.Context, program, data, relay string) (address string, err error) {
	var free [2]string // it cannot say which port it took
	for i := range free {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		free[i] = listener.Addr().String()
		listener.Close()
	}
	if p.server, err = startProcess(ctx, program, originalFlags(relay, data, free[0], free[1])); err != nil {
		return "", err
	}
	for begun := time.Now(); ; {
		response, err := http.Get("http://" + free[0]) //nolint:noctx // on this machine, and answered at once
		if err == nil {
			return "ws://" + free[0] + "/subscribe", response.Body.Close()
		}
		select {
		case <-p.server.done:
			return "", p.server.failed(fmt.Errorf("it ended: %w", p.server.err))
		case <-time.After(50 * time.Millisecond):
		}
		if time.Since(begun) > startTimeout {
			return "", p.server.failed(err)
		}
	}
}

func originalFlags(relay, data, listen, metrics string) []string {
	return []string{"--ws-url", relay + subscribeRepos, "--data-dir", data, "--listen-addr", listen, "--metrics-listen-addr", metrics,
		"--max-sub-rate", "1e9"}
}
