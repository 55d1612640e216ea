package main

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/cmd/millrace/ingest"
	"millrace/consume"
	"millrace/dict"
	"millrace/intern"
	"millrace/public"
	"millrace/replay"
	"millrace/replay/chain"
	"millrace/replay/graph/feed"
	"millrace/replay/references"
	"millrace/translate/verify/identity"
)

// plainFields compares the fields of a configuration that are plain values.
var plainFields = cmp.Options{
	cmp.FilterPath(func(p cmp.Path) bool {
		return slices.Contains([]reflect.Kind{reflect.Func, reflect.Interface}, p.Last().Type().Kind()) ||
			slices.Contains([]reflect.Type{reflect.TypeFor[*replay.Log](), reflect.TypeFor[*dict.Registry](), reflect.TypeFor[*slog.Logger]()}, p.Last().Type())
	}, cmp.Ignore()),
	cmpopts.IgnoreUnexported(replay.Config{}, ingest.Config{}, consume.Config{}, intern.Config{}),
	cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty(),
}

// TestFlagsReachTheParts: what each flag of serve says arrives where it is of use, and each part
// has its own share of the memory.
func TestFlagsReachTheParts(t *testing.T) {
	dir := t.TempDir()
	cfg := serveConfig(t, []string{"--relay", "wss://relay.test", "--relay-cursor", "17", "--new-epoch", "--epoch-patience", "61s", "--collections", "a.b.c",
		"--data-dir", dir, "--retention", "62h", "--retention-bytes", "63GiB", "--intern-scope", "dids", "--intern-timeout", "64s",
		"--uid-prefix-bits", "15", "--memory", "1GiB", "--max-connections", "651", "--max-connections-per-ip", "66",
		"--max-events-per-second", "67", "--trusted-proxies", "10.0.0.1", "--slow-timeout", "68s", "--shutdown-timeout", "70s", "--min-free-disk", "71GiB"})
	d := &daemon{cfg: cfg, logger: slog.New(slog.DiscardHandler), registry: prometheus.NewRegistry(), maxSubscribers: 650,
		files: descriptors{limit: 72, storeFiles: 73, handshakes: 74, subscribers: 75}}
	s := cfg.memoryShares()
	proxies, err := cfg.proxies()
	if err != nil {
		t.Fatal(err)
	}
	compare := func(part string, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got, plainFields); diff != "" {
			t.Errorf("%s, -want +got:\n%s", part, diff)
		}
	}
	log := d.logConfig("relay.test", s)
	compare("log", replay.Config{Dir: filepath.Join(dir, "log"), Relay: "relay.test", NewEpoch: true, Retention: 62 * time.Hour, RetentionBytes: 63 << 30, Collections: "a.b.c",
		TailBytes: s.tail, CacheBytes: s.cache, PebbleBytes: s.log, MaxOpenFiles: 73}, log)
	if log.Hold != nil || log.Strings != nil {
		t.Error("a log without references holds events")
	}
	pipeline := d.ingestConfig(s)
	compare("ingest", ingest.Config{Collections: []string{"a.b.c"}, InFlightBytes: s.inFlight, AppendBytes: int(s.log / 8)}, pipeline)
	if pipeline.NewResolver != nil || pipeline.References != nil || pipeline.Verify != nil || d.servingConfig(s).LeftOut != nil {
		t.Error("the pipeline has stores that there are not")
	}
	start := int64(17)
	relay := consume.Config{URL: "wss://relay.test", Epoch: 3, Cursor: 9, Start: &start, EpochPatience: 61 * time.Second, UserAgent: "millrace/" + version}
	compare("consume", relay, d.relayConfig(replay.Progress{Epoch: 3, Seq: 9}))
	at := replay.Progress{Epoch: 3, Seq: 9, Previous: replay.EpochEnd{Epoch: 2, Seq: 8}}
	relay.Previous, relay.Start = &consume.EpochEnd{Epoch: 2, Seq: 8}, nil
	cfg.relayCursor = nil
	compare("consume in a new epoch", relay, d.relayConfig(at))
	compare("intern", intern.Config{PrefixBits: 15, CacheBytes: s.strings, Scope: intern.ScopeDIDs, Timeout: 64 * time.Second}, d.internConfig(nil, s, d.logger))
	serving := d.servingConfig(s)
	compare("public", public.Config{Version: thisBuild().version, DayFile: filepath.Join(dir, dayFile), MaxConnections: 650, MaxConnectionsPerIP: 66, MaxHandshakes: 74, TrustedProxies: proxies,
		MaxEventsPerSecond: 67, SlowTimeout: 68 * time.Second, ClientBytes: s.clients, ChunkBytes: s.chunks()}, serving)
	if serving.UIDs != nil || serving.Links != nil || serving.Graph != nil {
		t.Error("the server has stores that there are not")
	}
	if dirs := d.storeDirs(); !slices.Equal(dirs, []string{cfg.logDir(), cfg.internDir()}) {
		t.Errorf("the stores are in %v", dirs)
	}

	if cfg, err = parseServe([]string{"--data-dir", dir, "--memory", "1GiB", "--references", "on", "--links", "--graph", "--graph-memory", "65MiB", "--shutdown-timeout", "70s"}, nil); err != nil {
		t.Fatal(err)
	}
	d.cfg, d.refs, d.uids, d.graph = cfg, &references.Store{}, &uidStore{interner: &intern.Interner{}}, &feed.Feed{}
	s = cfg.memoryShares()
	compare("intern with references", intern.Config{PrefixBits: 14, CacheBytes: s.strings - s.strings/4, NameBytes: s.strings / 4, Timeout: 5 * time.Second},
		d.internConfig(nil, s, d.logger))
	log, pipeline, serving = d.logConfig("", s), d.ingestConfig(s), d.servingConfig(s)
	if !log.References || log.Hold == nil || log.Strings == nil || pipeline.References == nil || pipeline.NewResolver == nil ||
		serving.UIDs == nil || serving.Links == nil || serving.Graph == nil {
		t.Errorf("references, links and graph are on: %+v, %+v, %+v", log, pipeline, serving)
	}
	if dirs := d.storeDirs(); !slices.Equal(dirs, []string{cfg.logDir(), cfg.internDir(), cfg.referencesDir()}) {
		t.Errorf("the stores are in %v", dirs)
	}
}

// TestVerificationReachesTheParts: likewise the flags of verification.
func TestVerificationReachesTheParts(t *testing.T) {
	dir := t.TempDir()
	d := &daemon{logger: slog.New(slog.DiscardHandler), registry: prometheus.NewRegistry(), verifier: &verifier{keys: &identity.Directory{}, chains: &chain.Store{}},
		files: descriptors{storeFiles: 73}, pipeline: &ingest.Pipeline{}}
	for _, mode := range []string{"flag", "drop"} {
		cfg := serveConfig(t, []string{"--data-dir", dir, "--verify", mode, "--verify-sample", "74", "--plc", "http://plc.test", "--did-web-private"})
		d.cfg = cfg
		s := cfg.memoryShares()
		if v := d.ingestConfig(s).Verify; v == nil || v.Keys != d.verifier.keys || v.Chains != d.verifier.chains || v.Sample != 74 || v.Drop != (mode == "drop") {
			t.Errorf("%s: %+v", mode, v)
		}
		if said := d.servingConfig(s).LeftOut != nil; said != (mode == "drop") {
			t.Errorf("%s: subscribers are told of what is left out: %t", mode, said)
		}
		c, k := d.chainConfig(s), d.identityConfig(s)
		if c.Dir != filepath.Join(dir, "chains") || c.Sample != 74 || c.PebbleBytes != s.chains || c.OpenFiles != 73 {
			t.Errorf("%s: chains: %+v", mode, c)
		}
		if k.Dir != filepath.Join(dir, "identities") || k.PLC != "http://plc.test" || !k.AllowPrivate || k.Bytes != s.keys || k.Registerer == nil {
			t.Errorf("%s: identities: %+v", mode, k)
		}
		if dirs := d.storeDirs(); !slices.Equal(dirs, []string{cfg.logDir(), cfg.internDir(), cfg.chainsDir(), cfg.identitiesDir()}) {
			t.Errorf("the stores are in %v", dirs)
		}
	}
	cfg := serveConfig(t, []string{"--verify=flag", "--plc-export", "export.jsonl"})
	if d.cfg = cfg; d.identityConfig(cfg.memoryShares()).PLC != "" || d.identityConfig(cfg.memoryShares()).Export != "export.jsonl" {
		t.Errorf("an export: %+v", d.identityConfig(cfg.memoryShares()))
	}
}
