package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/consume"
	"millrace/dict"
	"millrace/dict/jetstream"
	"millrace/translate"
)

// config is what the flags of `millrace serve` set.
type config struct {
	relay         string
	relayCursor   *int64 // nil: left out
	newEpoch      bool
	epochPatience time.Duration

	dataDir       string
	listen        string
	metricsListen string

	retention      time.Duration
	retentionBytes byteSize
	collections    list

	intern        choice
	internScope   choice
	fdbCluster    string
	internTimeout time.Duration
	uidPrefixBits int

	references  choice
	links       bool
	graph       bool
	graphMemory byteSize

	verification verification

	dictionary string
	memory     byteSize

	maxConnections      int
	maxConnectionsPerIP int
	maxEventsPerSecond  int
	trustedProxies      list

	slowTimeout     time.Duration
	shutdownTimeout time.Duration
	minFreeDisk     byteSize

	logFormat choice
	logLevel  choice

	given map[string]bool // names of the flags that the operator set

	hooks testHooks
}

// testHooks are what tests put in the place of the real things. No flag sets them.
type testHooks struct {
	now  func() time.Time // the wall clock of the log's stamps and of retention; nil: time.Now
	fs   vfs.FS           // of all stores; nil: the real one
	uids closableStore    // nil: the one that --intern names
}

func serveCommand() *command { return newConfig().command() }

func newConfig() *config {
	return &config{
		intern:      choice{"pebble", []string{"pebble", "fdb", "off"}},
		internScope: choice{"all", []string{"all", "dids"}},
		references:  choice{"off", []string{"on", "off"}},
		graphMemory: 1 << 30,
		memory:      256 << 20,
		minFreeDisk: 2 << 30,
		logFormat:   choice{"text", []string{"text", "json"}},
		logLevel:    choice{"info", []string{"debug", "info", "warn", "error"}},
		given:       make(map[string]bool),
	}
}

// command is the one that sets c and serves.
func (c *config) command() *command {
	fs := newFlags("serve")
	c.registerRelay(fs)
	c.registerStores(fs)
	c.verification.register(fs)
	c.registerServing(fs)
	memory, graphMemory := c.memory, c.graphMemory // by default
	return &command{
		name: "millrace serve", summary: "follow a relay, keep its events, serve them over websockets",
		about: `Every flag has a twin in the environment (right column); a flag wins over it. Sizes are bytes or
carry a unit (KiB, MiB, GiB, kB, MB, GB); durations are Go's (90s, 36h).`,
		flags: fs,
		groups: []flagGroup{
			{"To begin with", []string{"relay", "data-dir", "listen", "retention", "memory"}},
			{"The relay", []string{"relay-cursor", "new-epoch", "epoch-patience", "collections"}},
			{"Storage", []string{"retention-bytes", "min-free-disk", "zstd-dictionary"}},
			{"UIDs", []string{"intern", "intern-scope", "uid-prefix-bits", "intern-timeout", "fdb-cluster-file"}},
			{"References", []string{"references", "links", "graph", "graph-memory"}},
			{"Verification", []string{"verify", "verify-sample", "plc", "plc-export", "did-web-private"}},
			{"Subscribers", []string{"max-connections", "max-connections-per-ip", "max-events-per-second", "trusted-proxies", "slow-timeout"}},
			{"Operating", []string{"metrics-listen", "log-level", "log-format", "shutdown-timeout"}},
		},
		twins: []string{allTwins},
		more: func(w io.Writer) {
			s := divideMemory(memory)
			s.print(w, memory)
			s.printOptions(w, graphMemory)
		},
		check: func([]string) error {
			fs.Visit(func(f *flag.Flag) { c.given[f.Name] = true })
			return c.validate()
		},
		run: c.serve,
	}
}

func (c *config) registerRelay(fs *flag.FlagSet) {
	fs.StringVar(&c.relay, "relay", "wss://bsky.network", "relay `URL`: a host or a full URL; the path of\ncom.atproto.sync.subscribeRepos is added where it is missing")
	fs.Func("relay-cursor", "start at this `seq` of the relay when the log is empty (0: as far back as the relay\ngoes; left out: live); above 0 and below the position of a log it needs --new-epoch", func(s string) error {
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil || v < 0 {
			return fmt.Errorf("%q is not a whole number of 0 or more", s)
		}
		c.relayCursor = &v
		return nil
	})
	fs.BoolVar(&c.newEpoch, "new-epoch", false, "begin a new epoch: the relay has restarted its numbering, or --relay names\nanother host than the log was written from")
	fs.DurationVar(&c.epochPatience, "epoch-patience", 5*time.Minute, "how long a relay may send nothing but old numbers before millrace believes that\nits numbering has restarted (`duration`)")
	fs.Var(&c.collections, "collections", "store and serve only these collections (`NSID`s or prefix.*, separated by commas,\nmay be repeated); identity and account events are always kept,\nand what the log has of others until it is trimmed")
}

func (c *config) registerStores(fs *flag.FlagSet) {
	fs.StringVar(&c.dataDir, "data-dir", "./data", "directory of the event log, the embedded UID store and the reference store (`DIR`)")
	fs.DurationVar(&c.retention, "retention", 36*time.Hour, "how long events stay for replay (`duration`); 0 keeps only the position on disk and the\nnewest events in memory")
	fs.Var(&c.retentionBytes, "retention-bytes", "trim the oldest events when the log takes more than this (`size`; 0: no limit)")
	fs.Var(&c.intern, "intern", "where UIDs come from: pebble (embedded), fdb (FoundationDB, in a binary built with\n-tags fdb) or off")
	fs.Var(&c.internScope, "intern-scope", "what gets UIDs: all (DIDs and AT URIs, some 40 bytes of disk for ever each) or dids")
	fs.StringVar(&c.fdbCluster, "fdb-cluster-file", "", "cluster `file` of FoundationDB, with --intern=fdb")
	fs.DurationVar(&c.internTimeout, "intern-timeout", 5*time.Second, "longest time one transaction of the UID store may take (`duration`)")
	fs.IntVar(&c.uidPrefixBits, "uid-prefix-bits", 14, "bits of a UID that name its sequence (`number`); fixed when a store is made")
	fs.Var(&c.references, "references", "note what records point at: DIDs and AT URIs get UIDs, and deletes know what they\ndeleted; needs --intern-scope=all, and a --retention above 0")
	fs.BoolVar(&c.links, "links", false, "answer who points at a DID or record, with Constellation's API; needs --references=on")
	fs.BoolVar(&c.graph, "graph", false, "answer questions about sets of accounts: whom one follows, who follows it, what sets have in\ncommon; needs --references=on")
	fs.Var(&c.graphMemory, "graph-memory", "memory of the graph (`size`, from 64MiB up), beside --memory")
	fs.StringVar(&c.dictionary, "zstd-dictionary", dictionaryJetstream, "`jetstream|builtin|FILE` names the zstd dictionary of stored events. Clients can ask for\nany that is served; the stored one costs nothing to send")
	fs.Var(&c.minFreeDisk, "min-free-disk", "below this much free disk (`size`) millrace is not ready, trims early, and then stops reading\nthe relay until there is room")
}

func (c *config) registerServing(fs *flag.FlagSet) {
	fs.StringVar(&c.listen, "listen", ":6008", "public `address`")
	fs.StringVar(&c.metricsListen, "metrics-listen", "127.0.0.1:6009", "`address` of /metrics, /debug/pprof and backups; empty turns them off")
	fs.Var(&c.memory, "memory", "the whole memory budget (`size`, from 64MiB up); also the Go runtime's limit")
	fs.IntVar(&c.maxConnections, "max-connections", 20000, "subscribers in all (`number`), if --memory has room for them")
	fs.IntVar(&c.maxConnectionsPerIP, "max-connections-per-ip", 100, "subscribers per client address (`number`); loopback is not counted")
	fs.IntVar(&c.maxEventsPerSecond, "max-events-per-second", 0, "events a second to one subscriber (`number`), on average; more wait in the log. 0: no limit")
	fs.Var(&c.trustedProxies, "trusted-proxies", "`CIDR`s of proxies whose X-Forwarded-For is believed (separated by commas, may be repeated)")
	fs.DurationVar(&c.slowTimeout, "slow-timeout", 30*time.Second, "a subscriber that takes nothing for this long (`duration`) is ended")
	fs.DurationVar(&c.shutdownTimeout, "shutdown-timeout", 10*time.Second, "how long a clean stop may take (`duration`)")
	fs.Var(&c.logFormat, "log-format", "form of the log, which goes to standard error")
	fs.Var(&c.logLevel, "log-level", "least severe level that is logged")
}

// validate checks what can be checked without touching anything.
func (c *config) validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"epoch-patience", c.epochPatience, time.Second},
		{"retention", c.retention, 0},
		{"intern-timeout", c.internTimeout, 100 * time.Millisecond},
		{"slow-timeout", c.slowTimeout, time.Second},
		{"shutdown-timeout", c.shutdownTimeout, 100 * time.Millisecond},
	} {
		if d.value < d.least {
			return fmt.Errorf("--%s %v is below %v", d.name, d.value, d.least)
		}
	}
	if c.memory < minMemory {
		return fmt.Errorf("--memory %s is below %s", c.memory, byteSize(minMemory))
	}
	if c.uidPrefixBits < 1 || c.uidPrefixBits > 24 {
		return fmt.Errorf("--uid-prefix-bits %d is not between 1 and 24", c.uidPrefixBits)
	}
	if c.maxConnections < 1 || c.maxConnectionsPerIP < 1 {
		return errors.New("--max-connections and --max-connections-per-ip must be 1 or more")
	}
	if c.maxEventsPerSecond < 0 {
		return fmt.Errorf("--max-events-per-second %d is negative", c.maxEventsPerSecond)
	}
	if _, err := translate.New(translate.Config{Collections: c.collections}); err != nil {
		return fmt.Errorf("--collections: %w", err)
	}
	if _, err := c.proxies(); err != nil {
		return err
	}
	if _, err := consume.Host(c.relay); err != nil {
		return fmt.Errorf("--%w", err) // its errors begin with "relay"
	}
	if c.intern.value == "fdb" && !hasFoundation {
		return errNoFoundation
	}
	if err := errors.Join(c.validateReferences(), c.validateGraph(), c.verification.validate(c.given)); err != nil {
		return err
	}
	return c.validateAddresses()
}

// validateAddresses checks what can be said of an address without this machine's interfaces and
// names.
func (c *config) validateAddresses() error {
	if err := validateAddress(c.listen); err != nil {
		return adviseListen(err, "listen", c.listen)
	}
	if c.metricsListen == "" {
		return nil // off
	}
	if err := validateAddress(c.metricsListen); err != nil {
		return adviseListen(err, "metrics-listen", c.metricsListen)
	}
	if c.metricsListen == c.listen && !strings.HasSuffix(c.listen, ":0") {
		return fmt.Errorf("--listen and --metrics-listen are both %s; give them two ports", c.listen)
	}
	return nil
}

// validateAddress says what is wrong with an address to listen on: host:port, with the host
// optional.
func validateAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	var bad *net.AddrError
	switch {
	case errors.As(err, &bad):
		return errors.New(bad.Err) // without the address
	case err != nil:
		return err
	case port == "":
		return errors.New("missing port")
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("%q is not a port, 0 to 65535", port)
	}
	return nil
}

// proxies parses --trusted-proxies; a bare address is a network of one. A peer's IPv4 address is
// compared as such, however the network is written.
func (c *config) proxies() ([]netip.Prefix, error) {
	var ps []netip.Prefix
	for _, s := range c.trustedProxies {
		p, err := netip.ParsePrefix(s)
		if a, notAddr := netip.ParseAddr(s); notAddr == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("--trusted-proxies %q is neither an address nor a network such as 10.0.0.0/8", s)
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		ps = append(ps, p)
	}
	return ps, nil
}

// jetstreamDictionary returns the dictionary that Jetstream's clients carry.
func jetstreamDictionary() *dict.Dictionary {
	d, err := dict.Parse(jetstream.Dictionary())
	if err != nil {
		panic(fmt.Sprintf("Jetstream's dictionary: %v", err)) // it is part of the program
	}
	return d
}

// shippedDictionaries are enough to read a log, which has its others.
func shippedDictionaries() *dict.Registry {
	dicts, err := dict.NewRegistry(dict.BuiltIn(), dict.Shipped()...)
	if err != nil {
		panic(fmt.Sprintf("load the dictionaries: %v", err)) // likewise
	}
	return dicts
}

// Values of --zstd-dictionary that name no file.
const (
	dictionaryJetstream = "jetstream"
	dictionaryBuiltIn   = "builtin"
)

// storedDictionary returns the dictionary that --zstd-dictionary names.
func (c *config) storedDictionary() (*dict.Dictionary, error) {
	switch c.dictionary {
	case dictionaryJetstream:
		return jetstreamDictionary(), nil
	case dictionaryBuiltIn:
		return dict.BuiltIn(), nil
	}
	const want = "Give jetstream, builtin, or a file that millrace dict train has made; millrace dict inspect FILE says what a file is."
	d, err := readDictionary("--zstd-dictionary", c.dictionary)
	return d, advise(err, want)
}

func (c *config) logDir() string { return filepath.Join(c.dataDir, "log") }
