package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/intern"
	"millrace/intern/kv/simkv"
	"millrace/replay/verify"
)

func TestServeFlags(t *testing.T) {
	for _, tc := range []struct {
		name    string
		args    []string
		environ []string
		check   func(*config) bool
		err     string // part of the error; "" means none
	}{
		{name: "defaults", check: func(c *config) bool {
			return c.relay == "wss://bsky.network" && c.retention == 36*time.Hour && c.memory == 256<<20 &&
				c.intern.value == "pebble" && c.uidPrefixBits == 14 && c.relayCursor == nil
		}},
		{name: "twin", environ: []string{"MILLRACE_DATA_DIR=/x", "PATH=/bin"}, check: func(c *config) bool { return c.dataDir == "/x" }},
		{name: "argument wins over twin", args: []string{"--data-dir", "/y"}, environ: []string{"MILLRACE_DATA_DIR=/x"},
			check: func(c *config) bool { return c.dataDir == "/y" }},
		{name: "list wins over twin", args: []string{"--collections", "b.c.d", "--collections=c.d.e"}, environ: []string{"MILLRACE_COLLECTIONS=a.b.c"},
			check: func(c *config) bool { return strings.Join(c.collections, " ") == "b.c.d c.d.e" }},
		{name: "unknown flag", args: []string{"--relai", "x"}, err: "relai"},
		{name: "unknown variable", environ: []string{"MILLRACE_RELAI=x"}, err: "MILLRACE_RELAI names no flag"},
		{name: "variables of tests pass", environ: []string{"MILLRACE_TEST_LONG=1"}},
		{name: "variables of Kubernetes pass", environ: []string{"MILLRACE_SERVICE_HOST=10.0.0.1", "MILLRACE_PORT=tcp://10.0.0.1:6008", "MILLRACE_PORT_6008_TCP_ADDR=10.0.0.1",
			"MILLRACE_METRICS_SERVICE_PORT_HTTP=6009", "MILLRACE_METRICS_PORT=tcp://10.0.0.2:6009", "MILLRACE_METRICS_PORT_6009_TCP=tcp://10.0.0.2:6009"}},
		{name: "bad value in variable", environ: []string{"MILLRACE_MEMORY=much"}, err: `MILLRACE_MEMORY="much"`},
		{name: "flag for a value", args: []string{"--relay", "--references=on"}, err: "--relay has no value: --references=on is another flag"},
		{name: "stray argument", args: []string{"bsky.network"}, err: "takes no argument"},
		{name: "relay cursor 0 is not absent", args: []string{"--relay-cursor=0"}, check: func(c *config) bool { return c.relayCursor != nil && *c.relayCursor == 0 }},
		{name: "negative relay cursor", args: []string{"--relay-cursor=-1"}, err: "0 or more"},
		{name: "too little memory", args: []string{"--memory", "32MiB"}, err: "below 64MiB"},
		{name: "lists", args: []string{"--collections", "a.b.c,d.e.*", "--collections", "a.b.c f.g.h"},
			check: func(c *config) bool { return strings.Join(c.collections, " ") == "a.b.c d.e.* f.g.h" }},
		{name: "choice", args: []string{"--intern", "redis"}, err: "pebble, fdb, off"},
		{name: "proxies", args: []string{"--trusted-proxies", "10.0.0.1,fd00::/8"}},
		{name: "proxies in IPv6's spelling", args: []string{"--trusted-proxies", "::ffff:10.0.0.1,::ffff:10.1.0.0/112"}, check: func(c *config) bool {
			ps, err := c.proxies()
			return err == nil && ps[0] == netip.MustParsePrefix("10.0.0.1/32") && ps[1] == netip.MustParsePrefix("10.1.0.0/16")
		}},
		{name: "bad proxy", args: []string{"--trusted-proxies", "nginx"}, err: "10.0.0.0/8"},
		{name: "references without UIDs", args: []string{"--references=on", "--intern=off"}, err: "--references=on needs UIDs"},
		{name: "references of DIDs only", args: []string{"--references=on", "--intern-scope=dids"}, err: "--intern-scope=dids"},
		{name: "references without a log", args: []string{"--references=on", "--retention=0"}, err: "--retention"},
		{name: "no such verification", args: []string{"--verify=on"}, err: "off, flag, drop"},
		{name: "verification", args: []string{"--verify=flag", "--verify-sample=9", "--intern=off", "--plc=http://127.0.0.1:1"}, check: func(c *config) bool {
			return c.verification.verifies() && c.verification.sample == 9
		}},
		{name: "sample of nothing", args: []string{"--verify-sample=0"}, err: "--verify-sample 0 is below 1"},
		{name: "no directory", args: []string{"--plc=plc.directory"}, err: "--plc"},
		{name: "two directories", args: []string{"--plc=http://x", "--plc-export=y"}, err: "one of them"},
		{name: "two free ports", args: []string{"--listen=:0", "--metrics-listen=:0"}},
		{name: "negative duration", args: []string{"--retention=-1h"}, err: "--retention"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := parseServe(tc.args, tc.environ)
			if tc.err != "" {
				var usage usageError
				if err == nil || !strings.Contains(err.Error(), tc.err) || !errors.As(err, &usage) {
					t.Fatalf("error %v, want a usage error with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tc.check != nil && !tc.check(c) {
				t.Errorf("wrong value in %+v", c)
			}
		})
	}
}

// TestBounds: each flag takes its least and its highest value, and none beyond.
func TestBounds(t *testing.T) {
	for _, tc := range []struct {
		flag string
		good []string
		bad  []string
	}{
		{"epoch-patience", []string{"1s"}, []string{"999ms"}},
		{"retention", []string{"0"}, []string{"-1ns"}},
		{"intern-timeout", []string{"100ms"}, []string{"99ms"}},
		{"slow-timeout", []string{"1s"}, []string{"999ms"}},
		{"shutdown-timeout", []string{"100ms"}, []string{"99ms"}},
		{"memory", []string{"64MiB"}, []string{"67108863"}},
		{"uid-prefix-bits", []string{"1", "24"}, []string{"0", "25"}},
		{"max-connections", []string{"1"}, []string{"0"}},
		{"max-connections-per-ip", []string{"1"}, []string{"0"}},
		{"max-events-per-second", []string{"0"}, []string{"-1"}},
		{"data-dir", []string{"x"}, []string{""}},
		{"collections", []string{"a.b.c"}, []string{"a"}},
		{"verify-sample", []string{"1"}, []string{"0"}},
		{"plc", []string{"http://a", "https://a"}, []string{"ftp://a", "https:a", "https://:1", "https://u:secret@a?b", "https://a#secret", "%secret"}},
		{"plc-export", []string{"x"}, nil},
		{"graph-memory", []string{"64MiB"}, []string{"67108863"}},
		{"graph", []string{"true"}, []string{"maybe"}},
		{"listen", []string{":0", "[::1]:6008", ":http"}, []string{"", ":", "a", ":65536", "127.0.0.1:6009"}},
		{"metrics-listen", []string{"", ":0", ":6009"}, []string{":", ":6008"}},
		{"relay-cursor", []string{"0"}, []string{"-1", "x"}},
		{"retention-bytes", []string{"0", "4194304TiB"}, []string{"-1", "x", "4194305TiB"}},
	} {
		for _, with := range []string{"--references=off", "--references=on --links --graph"} {
			for i, value := range append(tc.good, tc.bad...) {
				args := append(strings.Fields(with), "--"+tc.flag+"="+value)
				want := i < len(tc.good) || tc.flag == "graph-memory" && with == "--references=off" // then it has no meaning
				if tc.flag == "graph" && value == "true" && with == "--references=off" || tc.flag == "retention" && value == "0" && with != "--references=off" {
					want = false // one needs the other
				}
				if _, err := parseServe(args, nil); (err == nil) != want || !want && (!strings.Contains(err.Error(), tc.flag) || strings.Contains(err.Error(), "secret")) {
					t.Errorf("%v: %v", args, err)
				}
			}
		}
	}
}

// TestEmptyDataDir: no command takes the working directory for want of a name.
func TestEmptyDataDir(t *testing.T) {
	commands := 0
	program().eachRunnable(func(c *command) {
		if f := c.flags.Lookup("data-dir"); f == nil || f.DefValue == "" {
			return // or it need not be given
		}
		commands++
		if _, err := c.parse([]string{"--data-dir="}, nil); !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), "--data-dir is empty") {
			t.Errorf("%s: %v", c.name, err)
		}
	})
	if commands < 10 {
		t.Errorf("%d commands have --data-dir", commands)
	}
}

func TestByteSize(t *testing.T) {
	for in, want := range map[string]byteSize{
		"0": 0, "1048576": 1 << 20, "256MiB": 256 << 20, "2GiB": 2 << 30, "1.5GiB": 3 << 29,
		"500MB": 500e6, "10kB": 10e3, "7B": 7, "2 GiB": 2 << 30,
		"3KiB": 3 << 10, "1TiB": 1 << 40, "4KB": 4e3, "2GB": 2e9, "1TB": 1e12, "4194304TiB": 1 << 62,
	} {
		got, err := parseByteSize(in)
		if err != nil || got != want {
			t.Errorf("parseByteSize(%q) = %d, %v; want %d", in, got, err, want)
		}
		if back, err := parseByteSize(got.String()); err != nil || back != got {
			t.Errorf("%d writes itself as %q, which reads as %d, %v", got, got, back, err)
		}
	}
	for _, in := range []string{"", "MiB", "-1", "1e30", "NaN", "12XB", "Inf", "4194305TiB"} {
		if got, err := parseByteSize(in); err == nil {
			t.Errorf("parseByteSize(%q) = %d, want an error", in, got)
		}
	}
}

// Flags may come before and after other arguments, and -- ends them.
func TestFlagsInAnyOrder(t *testing.T) {
	for _, tc := range []struct {
		args, want, url string
	}{
		{"a --url u b", "a b", "u"},
		{"--url u a b", "a b", "u"},
		{"a b --url=u", "a b", "u"},
		{"a -- --url u", "a --url u", "none"},
		{"a -- b --url u", "a b --url u", "none"},
		{"-- -", "-", "none"},
		{"- --url u", "-", "u"},
		{"", "", "none"},
	} {
		fs := flag.NewFlagSet("x", flag.ContinueOnError)
		url := fs.String("url", "none", "")
		if err := parseFlags(fs, strings.Fields(tc.args), nil); err != nil || strings.Join(fs.Args(), " ") != tc.want || *url != tc.url {
			t.Errorf("%q: arguments %q, --url %s, error %v", tc.args, fs.Args(), *url, err)
		}
	}
}

// The manual has every flag with its twin, and the shares of the budget add up to no more than it.
func TestServeHelp(t *testing.T) {
	var out bytes.Buffer
	if code := run(t.Context(), []string{"serve", "--help"}, &out, &out); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	for _, want := range []string{
		"--relay URL", "MILLRACE_RELAY", "--relay-cursor", "--new-epoch", "--epoch-patience", "--data-dir", "--listen",
		"--metrics-listen", "--retention", "--retention-bytes", "--collections", "--intern", "--intern-scope",
		"--fdb-cluster-file", "--intern-timeout", "--uid-prefix-bits", "--references", "With --references=on 33 MiB", "--zstd-dictionary", "--memory", "--max-connections",
		"--max-connections-per-ip", "--max-events-per-second", "--trusted-proxies", "--slow-timeout", "--shutdown-timeout", "--min-free-disk",
		"--log-format", "--log-level", "--verify ", "--verify-sample", "--plc URL", "--plc-export", "--did-web-private", "With --verify 11 MiB", "How --memory 256MiB is shared out", "there is room for 2,083.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the manual lacks %q", want)
		}
	}
	s := divideMemory(minMemory)
	sum := s.inFlight + s.tail + s.cache + s.log + s.uids + s.strings + s.clients + s.garbage + s.fixed
	if sum > minMemory || sum < minMemory-100 {
		t.Errorf("shares add up to %d of %d", sum, minMemory)
	}
	if s.clients < 1_310_000 {
		t.Errorf("clients have %d bytes: no room for the largest filter, see TestLargestFilterFitsTheSmallestBudget", s.clients)
	}
	if r := s.withReferences(); r.inFlight+r.tail+r.cache+r.log+r.uids+r.strings+r.clients+r.garbage+r.fixed+r.references+r.overlay != sum {
		t.Errorf("with references the shares are %+v, which add up to another sum than %d", r, sum)
	}
	if v := s.withReferences().withVerification(); v.inFlight+v.tail+v.cache+v.log+v.uids+v.strings+v.clients+v.garbage+v.fixed+v.references+v.overlay+v.chains+v.keys != sum {
		t.Errorf("with verification the shares are %+v, which add up to another sum than %d", v, sum)
	}
	if heap := s.inFlight + s.tail + s.cache + s.strings + s.clients; s.goLimit(minMemory) <= heap {
		t.Errorf("the Go runtime's limit %d leaves nothing beside %d of live heap", s.goLimit(minMemory), heap)
	}
}

func TestExitCodes(t *testing.T) {
	var out bytes.Buffer
	for _, tc := range []struct {
		args []string
		want int
	}{
		{nil, exitUsage},
		{[]string{"serv"}, exitUsage},
		{[]string{"serve", "--nope"}, exitUsage},
		{[]string{"tail", "--url", "ftp://x"}, exitUsage},
		{[]string{"version"}, exitOK},
		{[]string{"--help"}, exitOK},
		{[]string{"tail", "--help"}, exitOK},
		{[]string{"help", "tail"}, exitOK},
		{[]string{"help", "intern", "export"}, exitOK},
		{[]string{"intern"}, exitUsage},
		{[]string{"intern", "expor"}, exitUsage},
		{[]string{"intern", "export", "--by", "7", "x"}, exitUsage},
		{[]string{"intern", "compact", "--intern", "fdb"}, exitUsage},
		{[]string{"dict"}, exitUsage},
		{[]string{"dict", "inspect", "--help"}, exitOK},
		{[]string{"dict", "train", "--size", "1", "x"}, exitUsage},
		{[]string{"dict", "train", "--url", "x", "--cursor", "y"}, exitUsage},
		{[]string{"uid", "nobody"}, exitUsage},
		{[]string{"verify", "--problems", "0"}, exitUsage},
		{[]string{"backup", "--to", "x", "y"}, exitUsage},
		{[]string{"tail", "--since", "1h", "--until", "2h"}, exitUsage},
		{[]string{"completion", "tcsh"}, exitUsage},
	} {
		if got := run(t.Context(), tc.args, &out, &out); got != tc.want {
			t.Errorf("millrace %v: exit code %d, want %d", tc.args, got, tc.want)
		}
	}
}

// TestCommandUsage: each command refuses what it cannot do before it looks for data. What is within
// its bounds it takes.
func TestCommandUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	for line, want := range map[string]int{
		"references import --as-of 2019-12-31T23:59:59Z -": exitUsage, "references import --as-of 2020-01-01T00:00:00Z -": exitFailed,
		"references import --as-of " + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + " -": exitUsage,
		"references import --as-of " + time.Now().UTC().Format(time.RFC3339) + " -":                exitFailed,
		"references export": exitFailed, "references export --source a:b --did did:web:a.example": exitFailed, "references export --did alice": exitUsage,
		"references purge alice": exitUsage, "references purge did:web:a.example": exitFailed,
		"graph import": exitUsage, "graph import --kind likes -": exitUsage, "graph import --kind blocks -": exitFailed,
		"graph export": exitFailed, "graph export x": exitUsage, "graph remove": exitFailed, "graph remove x": exitUsage,
		"links verify": exitFailed, "links verify x": exitUsage, "references verify": exitFailed,
		"verify": exitFailed, "verify x": exitUsage, "verify --problems 1 --workers 0": exitFailed, "verify --workers -1": exitUsage,
		"intern export": exitUsage, "intern export a b": exitUsage, "intern export a": exitFailed, "intern import": exitUsage, "intern verify x": exitUsage,
		"intern compact x": exitUsage, "intern skip-ahead --by x": exitUsage, "intern skip-ahead --by 1": exitFailed,
		"backup": exitUsage, "backup --to x y": exitUsage, "backup --to x": exitFailed,
		"uid": exitUsage, "uid x": exitUsage, "uid --url ftp://x 7": exitUsage, "uid" + strings.Repeat(" 7", maxUIDArgs+1): exitUsage,
		"uid --url 127.0.0.1:1" + strings.Repeat(" 7", maxUIDArgs): exitFailed,
		"completion": exitUsage, "completion bash x": exitUsage, "completion bash": exitOK, "completion words": exitOK, "man x": exitUsage, "man": exitOK, "version x": exitUsage,
		"doctor": exitUsage, "doctor x": exitFailed,
	} {
		if got, out := millrace(t, strings.Fields(line)...); got != want {
			t.Errorf("millrace %.80s: exit code %d, want %d\n%.300s", line, got, want, out)
		}
	}
	if !hasFoundation {
		for _, line := range []string{"references import -", "references export", "references purge did:web:a.example", "graph import -", "graph export", "graph remove", "intern verify"} {
			if got, out := millrace(t, append(strings.Fields(line), "--intern=fdb")...); got != exitUsage || !strings.Contains(out, "-tags fdb") {
				t.Errorf("millrace %s with FoundationDB: exit code %d\n%s", line, got, out)
			}
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("%v is made, %v", left, err)
	}
}

// TestReports: of what checks have found the first problems are printed, a line each, and how many
// more there are.
func TestReports(t *testing.T) {
	r := &verify.Report{Blocks: 3, Events: 40, Bytes: 5, Spans: 6, Gaps: 7, Dictionaries: 8}
	counts := "40 events in 3 blocks, 5 bytes; 6 spans, 7 gaps, 8 dictionaries; %d problems; 2.0 s, 20 events/s\n"
	var b bytes.Buffer
	if err := printReport(&b, r, 2*time.Second); err != nil || b.String() != fmt.Sprintf(counts, 0) {
		t.Errorf("a whole log: %v, %s", err, &b)
	}
	p := verify.Problem{Part: "index", Block: 9, Event: -1, Offset: -1, Text: "torn"}
	for problems, more := range map[int64]string{1: "", 3: "and 2 more\n"} {
		b.Reset()
		r.Problems, r.Examples = problems, []verify.Problem{p}
		if err := printReport(&b, r, 2*time.Second); err == nil || b.String() != fmt.Sprint(p)+"\n"+more+fmt.Sprintf(counts, problems) {
			t.Errorf("%d problems: %v, %s", problems, err, &b)
		}
		b.Reset()
		if printProblems(&b, []string{"torn"}, uint64(problems)); b.String() != "torn\n"+more {
			t.Errorf("%d problems: %s", problems, &b)
		}
	}
	b.Reset()
	if printProgress(&b, verify.Progress{Events: 1, Bytes: 1, TotalBytes: 8}, time.Second); b.String() != " 12.5 %, 1 events, 1 events/s\n" {
		t.Errorf("with a total: %s", &b)
	}
	b.Reset()
	if printProgress(&b, verify.Progress{Events: 36_000}, time.Hour); b.String() != "36000 events, 10 events/s\n" {
		t.Errorf("without a total: %s", &b)
	}
}

// emptyDump returns a dump of a UID store that has given no UID.
func emptyDump(t *testing.T) string {
	t.Helper()
	store := simkv.New(simkv.Config{})
	uids, err := intern.Open(t.Context(), intern.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "dump"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = intern.Export(t.Context(), store, f, nil)
	if err := errors.Join(err, f.Close(), uids.Close()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// TestTwins: a command that has twins of flags takes those from the environment, and no others.
func TestTwins(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "file"), "")
	t.Setenv("MILLRACE_DATA_DIR", filepath.Join(file, "data")) // which cannot be
	out := filepath.Join(t.TempDir(), "out")
	args := map[string]string{
		"millrace backup": "--to " + out, "millrace intern export": out, "millrace intern import": emptyDump(t),
		"millrace graph import":      "/dev/null",
		"millrace references import": "--as-of 2026-11-24T12:00:00Z /dev/null", "millrace references purge": "did:web:example.com",
	}
	tried := 0
	var try func(c *command)
	try = func(c *command) {
		for _, sub := range c.subs {
			try(sub)
		}
		if len(c.twins) == 0 || c.hasTwin("relay") { // serve goes on for ever
			return
		}
		tried++
		line := strings.Fields(c.name + " " + args[c.name])[1:]
		if code, text := millrace(t, line...); code != exitFailed || !strings.Contains(text, file) {
			t.Errorf("%s with MILLRACE_DATA_DIR: exit code %d\n%s", c.name, code, text)
		}
		t.Setenv("MILLRACE_INTERN", "nope")
		code, text := millrace(t, line...)
		os.Unsetenv("MILLRACE_INTERN")
		if strings.Contains(text, "MILLRACE_INTERN") != c.hasTwin("intern") {
			t.Errorf("%s with MILLRACE_INTERN: exit code %d\n%s", c.name, code, text)
		}
	}
	try(program())
	if tried != 15 {
		t.Errorf("%d commands have a data directory", tried)
	}
}
