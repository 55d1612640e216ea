package ingest

import (
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"

	"millrace/consume"
	"millrace/consume/relaysim"
	"millrace/dict"
	"millrace/replay"
	"millrace/replay/chain"
	"millrace/translate/verify"
	"millrace/translate/verify/identity"
)

// BenchmarkPipeline takes signed commits from the socket to the disk, without UIDs: not verified,
// with all keys known, and with a directory of keys that fails in some way.
func BenchmarkPipeline(b *testing.B) {
	r, err := relaysim.New(relaysim.Config{Seed: 4, Generate: 4000, Accounts: 1000, Signed: true})
	if err != nil {
		b.Fatal(err)
	}
	var frames []consume.Frame
	for i, m := range r.Take(4000) {
		frames = append(frames, consume.Frame{Epoch: 1, Seq: int64(1 + i), Data: m.Payload})
	}
	known := &knownKeys{keys: make(map[uint64]atcrypto.PublicKey)}
	for _, f := range frames {
		var v verify.Verifier
		if did := v.Open(f.Data); did != nil {
			if known.keys[chain.AccountOf(did).Number()], err = relaysim.PublicKey(string(did)); err != nil {
				b.Fatal(err)
			}
		}
	}
	run := func(name string, keys Keys) {
		b.Run(name, func(b *testing.B) {
			var cpu, wall time.Duration
			n := 0
			for b.Loop() {
				c, w := takeThrough(b, frames, keys)
				cpu, wall, n = cpu+c, wall+w, n+len(frames)
			}
			b.ReportMetric(float64(cpu.Microseconds())/float64(n), "cpu-us/frame")
			b.ReportMetric(float64(n)/wall.Seconds(), "frames/s")
		})
	}
	run("off", nil)
	run("known", known)
	plc := &relaysim.PLC{}
	server := httptest.NewServer(plc)
	defer server.Close()
	for _, fault := range []string{"down", "silent", "slow", "endless", "other-did"} {
		_ = plc.SetFault(fault)
		keys, err := identity.Open(identity.Config{Dir: b.TempDir(), PLC: server.URL})
		if err != nil {
			b.Fatal(err)
		}
		run(fault, keys)
		if err := keys.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// knownKeys knows all keys.
type knownKeys struct{ keys map[uint64]atcrypto.PublicKey }

func (k *knownKeys) Key(account uint64, _ string) (atcrypto.PublicKey, identity.State) {
	return k.keys[account], identity.Current
}
func (*knownKeys) Refresh(uint64, string) bool { return false }
func (*knownKeys) Changed(uint64, string)      {}
func (*knownKeys) Flush() error                { return nil }

// takeThrough takes the frames through a pipeline to a log on disk, and returns what that took.
// They are verified if keys is not nil.
func takeThrough(b *testing.B, frames []consume.Frame, keys Keys) (cpu, wall time.Duration) {
	b.Helper()
	dir := b.TempDir()
	dicts, err := dict.NewRegistry(dict.BuiltIn())
	if err != nil {
		b.Fatal(err)
	}
	defer dicts.Close()
	log, err := replay.Open(replay.Config{Dir: filepath.Join(dir, "log"), Relay: "relay.example.com", Retention: time.Hour, Dictionaries: dicts})
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	store, err := chain.Open(chain.Config{Dir: filepath.Join(dir, "chains"), Sample: 1})
	if err == nil {
		err = store.Begin(chain.Position{Epoch: log.Progress().Epoch})
	}
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	cfg := Config{Log: log, InFlightBytes: 25 << 20}
	if keys != nil {
		cfg.Verify = &Verification{Keys: keys, Chains: store, Sample: 1}
	}
	p, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	begun, before := time.Now(), cpuTime(b)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(b.Context()) }()
	for _, f := range frames {
		if err := p.Handle(b.Context(), f); err != nil {
			b.Fatal(err)
		}
	}
	p.Finish()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	if _, known := keys.(*knownKeys); known {
		var valid dto.Metric
		if err := p.metrics.verified[verify.Valid].Write(&valid); err != nil || int(valid.GetCounter().GetValue()) < len(frames)*8/10 {
			b.Fatalf("%v of %d frames are valid; %v", valid.GetCounter().GetValue(), len(frames), err)
		}
	}
	return cpuTime(b) - before, time.Since(begun)
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
