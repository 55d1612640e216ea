package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

// checkListen tries the addresses before anything is opened or begun. No listener stays open: its
// clients would wait for the stores.
func (c *config) checkListen() error {
	for _, flag := range []struct{ name, address string }{{"listen", c.listen}, {"metrics-listen", c.metricsListen}} {
		if flag.address == "" {
			continue
		}
		l, err := net.Listen("tcp", flag.address)
		if err != nil {
			return adviseListen(err, flag.name, flag.address)
		}
		defer l.Close() // when both are tried: they may be one
	}
	return nil
}

// listen opens the listeners, and records for commands on this machine where the one for operators
// is.
func (d *daemon) listen() (err error) {
	cfg := d.cfg
	if d.publicListener, err = net.Listen("tcp", cfg.listen); err != nil {
		return adviseListen(err, "listen", cfg.listen)
	}
	if cfg.metricsListen == "" {
		return withdrawControl(cfg.dataDir) // a process that was killed may have left it
	}
	if d.metricsListener, err = net.Listen("tcp", cfg.metricsListen); err != nil {
		return adviseListen(err, "metrics-listen", cfg.metricsListen)
	}
	d.control = controlFor(d.metricsListener.Addr())
	return adviseDataDir(d.control.publish(cfg.dataDir), cfg.dataDir)
}

// operatorRoutes are those of --metrics-listen.
func (d *daemon) operatorRoutes(b *backups) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.registry, promhttp.HandlerOpts{Registry: d.registry}))
	mux.Handle("POST /backup", b)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// serveMetrics serves operatorRoutes until ctx ends, which ends a backup, too.
func (d *daemon) serveMetrics(ctx context.Context) error {
	b := &backups{token: d.control.Token, make: d.backUp}
	srv := &http.Server{Handler: d.operatorRoutes(b), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() {
		d.stopCopying(context.Cause(ctx))
		b.one.Lock() // what it had copied is removed before the stores are closed
		_ = srv.Close()
	})()
	if err := srv.Serve(netutil.LimitListener(d.metricsListener, metricsConnections)); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
