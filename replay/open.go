package replay

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/clocktrust"
	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
	"millrace/replay/internal/pebblestore"
)

// Open opens the log in cfg.Dir, or makes an empty one. It reads the meta values, the sources, the
// keys of the spans, and the indexes of the blocks that no span covers yet. A log of 36 hours at
// 1,500 events/s has some 3,000 spans. Errors: ErrNoLog (if read only), ErrInUse, ErrLost,
// ErrRelayMismatch, errUIDStoreMismatch, ErrNewerFormat, *CorruptionError, and those of the disk.
func Open(cfg Config) (*Log, error) {
	l, err := Prepare(cfg)
	if err != nil {
		return nil, err
	}
	if err := l.Begin(); err != nil {
		return nil, cmp.Or(err, l.Close())
	}
	return l, nil
}

// Prepare opens the log as Open does, and changes nothing of what it holds until Begin. Its state
// is that after Begin: an epoch has begun, references are on or off. Events are neither read,
// appended nor trimmed before that. A log that is closed instead stays as it was.
func Prepare(cfg Config) (*Log, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	st, err := openStore(&cfg)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l, err := open(cfg, st)
	if err != nil {
		return nil, cmp.Or(fmt.Errorf("open log in %s: %w", cfg.Dir, err), st.Close())
	}
	return l, nil
}

// Begin makes durable what Prepare left.
func (l *Log) Begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.opening
	if l.opening = nil; batch == nil {
		return nil
	}
	defer l.store.CloseBatch(batch)
	if batch.Empty() {
		return nil
	}
	if err := l.store.Commit(batch, true); err != nil {
		return fmt.Errorf("begin log: %w", err)
	}
	return nil
}

// openStore opens the store of cfg, which has its defaults.
func openStore(cfg *Config) (*pebblestore.Store, error) {
	return logstore.Open(pebblestore.Config{Dir: cfg.Dir, FS: cfg.FS, ReadOnly: cfg.ReadOnly, Bytes: cfg.PebbleBytes,
		OpenFiles: cfg.MaxOpenFiles, BlobValue: cfg.hooks.blobValue, Logger: cfg.Logger})
}

func open(cfg Config, st *pebblestore.Store) (*Log, error) {
	l := &Log{
		cfg:     cfg,
		store:   st,
		stored:  storedDictionary{Dictionary: cfg.Dictionaries.Stored()},
		closing: make(chan struct{}),
	}
	enc, err := cfg.Dictionaries.Encoder(l.stored.ID())
	if err != nil {
		return nil, fmt.Errorf("make the encoder: %w", err)
	}
	l.stored.encoder = enc
	o := opener{cfg: &cfg, store: st, batch: st.Pebble().NewBatch(), snap: &snapshot{changed: make(chan struct{})}}
	sources := logstore.NewSources()
	for _, step := range []func() error{o.format, o.uidStore, o.readState, o.streams, o.state, o.dictionaries, o.gaps, o.references,
		func() error { return sources.Load(st) }, o.fingerprintKey, o.openSpan} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if !cfg.ReadOnly {
		l.opening = o.batch
	}
	s := o.snap
	s.beforeTail = s.Newest
	l.spans = o.spans
	l.blocks = newBlockStore(l, sources)
	l.snap.Store(s)
	l.trims.clock = clocktrust.New(clocktrust.Reading{Wall: cfg.Now(), Mono: cfg.Monotonic()}, s.TimeUS, cfg.FrameAge != nil)
	l.metrics = newMetrics(cfg.Registerer, l)
	cfg.Logger.Info("log is open", "stream", s.streams.Tag(s.Epoch).String(), "epoch", s.Epoch, "seq", s.Seq,
		"oldest_us", s.Oldest.TimeUS, "newest_us", s.Newest.TimeUS,
		"events", s.held().Events, "bytes", s.held().Bytes)
	return l, nil
}

// opener reads the meta values into snap, in steps, and gathers what must be written in batch.
type opener struct {
	cfg   *Config
	store *pebblestore.Store
	batch *pebble.Batch
	snap  *snapshot
	spans *logstore.SpanWriter

	fresh    bool         // the store is empty
	stored   format.State // as it was read
	hasState bool

	fingerprints format.FingerprintKey
}

// format checks the version. Its value alone has no trailer: every version must be able to read it.
func (o *opener) format() error {
	v, ok, err := o.store.Value(format.MetaKey(format.MetaFormat))
	if err != nil {
		return err
	}
	if !ok {
		if !logstore.IsEmpty(o.store) {
			return logstore.Corrupt(format.RangeMeta, 0, fmt.Errorf("%s: %w", format.MetaFormat, format.ErrMissing))
		}
		if o.cfg.ReadOnly {
			return ErrNoLog
		}
		o.fresh, o.snap.version = true, format.Version
		return logstore.PutVersion(o.batch, format.Version)
	}
	if len(v) != 4 {
		return logstore.Corrupt(format.RangeMeta, 0, fmt.Errorf("%s has %d bytes, not 4", format.MetaFormat, len(v)))
	}
	got := binary.BigEndian.Uint32(v)
	if got < format.Version {
		return fmt.Errorf("%w: version %d, this program writes %d, and no release wrote the older: move the directory away to begin an empty log",
			errOlderFormat, got, format.Version)
	}
	if got > format.NewestVersion {
		return fmt.Errorf("%w: version %d, and this millrace knows up to %d", ErrNewerFormat, got, format.NewestVersion)
	}
	o.snap.version = got
	return nil
}

// uidStore checks whose UIDs the log holds. Interning may be turned off and on again, but the store
// that was used first stays the log's.
func (o *opener) uidStore() error {
	v, ok, err := uidStoreOf(o.store)
	if err != nil {
		return err
	}
	switch {
	case o.cfg.UIDStore == "":
		return nil
	case !ok:
		return logstore.PutMeta(o.batch, format.MetaUIDs, []byte(o.cfg.UIDStore))
	case v != o.cfg.UIDStore:
		return fmt.Errorf("%w: its UIDs are of store %s, but store %s is in use: give it the store it was made with, or move the log's directory away to begin an empty log",
			errUIDStoreMismatch, v, o.cfg.UIDStore)
	}
	return nil
}

// streams checks which relay the log follows, and begins a new epoch if it is asked to.
func (o *opener) streams() error {
	streams, ok, err := logstore.Meta(o.store, format.MetaStreams, format.DecodeStreams)
	if err != nil {
		return err
	}
	if !ok {
		if !o.fresh {
			return logstore.MissingMeta(format.MetaStreams)
		}
		o.snap.Epoch = firstEpoch
		return o.follow(firstEpoch)
	}
	if err := o.seqBases(streams); err != nil {
		return err
	}
	o.snap.streams = streams
	last := streams[len(streams)-1]
	o.snap.Epoch = last.Epoch
	switch {
	case o.cfg.NewEpoch && (o.hasFrames(last.Epoch) || last.Relay != o.cfg.Relay):
		return o.newEpoch(last.Epoch)
	case last.Relay == o.cfg.Relay, o.cfg.Relay == "" && o.cfg.ReadOnly:
		return nil
	case o.hasState && o.unused() && !o.cfg.ReadOnly:
		return o.follow(last.Epoch)
	}
	return fmt.Errorf("%w: it follows %s, not %s: start with --new-epoch to go on with the other relay (readers' positions then name a new stream), or with the right --relay",
		ErrRelayMismatch, last.Relay, o.cfg.Relay)
}

// hasFrames says whether a frame of the last epoch was committed. Without one it is as good as a
// new one: a start that is refused later, and repeated, begins no epoch each time.
func (o *opener) hasFrames(last uint32) bool { return o.stored.Epoch == last && o.stored.Seq > 0 }

// newEpoch begins an epoch of the configured relay after the last one.
func (o *opener) newEpoch(last uint32) (err error) {
	var lastSeq int64
	if o.hasFrames(last) {
		lastSeq = o.stored.Seq
	}
	streams := o.snap.streams
	// Two tags in 16 million may be equal; the next epoch's will not be.
	for _, epoch := range []uint32{last + 1, last + 2} {
		if o.snap.streams, err = streams.Add(o.cfg.Relay, epoch, lastSeq); err == nil {
			o.snap.Epoch = epoch
			return logstore.PutStreams(o.batch, o.snap.streams)
		}
	}
	return err
}

// seqBases sets the bases of the streams. A log whose later epochs have none is of a program
// without v2's wire: they get theirs now.
func (o *opener) seqBases(streams format.Streams) error {
	known, _, err := logstore.Meta(o.store, format.MetaSeqBases, func(b []byte) (int, error) { return format.DecodeSeqBases(b, streams) })
	if err != nil {
		return err
	}
	// the first is 0, whichever it is
	if known = max(known, 1); known == len(streams) {
		return nil
	}
	for i := known; i < len(streams); i++ {
		last, err := logstore.LastFrame(o.store, streams[i-1].Epoch)
		if err != nil {
			return err
		}
		streams[i].SeqBase = format.NextSeqBase(streams[i-1].SeqBase, last)
	}
	return logstore.PutStreams(o.batch, streams)
}

// unused says whether the log holds no event and no position, nor ever did: then nothing ties it to
// the relay it was made for.
func (o *opener) unused() bool {
	s := &o.stored
	return s.Seq == 0 && s.TimeUS == 0 && s.Previous == (EpochEnd{}) && s.Newest == (format.Point{})
}

// follow makes epoch the only one, of the configured relay: the log is not used yet.
func (o *opener) follow(epoch uint32) (err error) {
	if o.snap.streams, err = format.Streams.Add(nil, o.cfg.Relay, epoch, 0); err != nil {
		return err
	}
	return logstore.PutStreams(o.batch, o.snap.streams)
}

// readState reads how far the log had come.
func (o *opener) readState() (err error) {
	o.stored, o.hasState, err = logstore.Meta(o.store, format.MetaState, format.DecodeState)
	return err
}

// state makes that the snapshot's, and moves it to a new epoch. It runs after streams.
func (o *opener) state() error {
	s := o.snap
	epoch := s.Epoch
	switch {
	case o.hasState:
		s.State = o.stored
	case !o.fresh:
		return logstore.MissingMeta(format.MetaState)
	}
	if s.Epoch != epoch {
		if !o.cfg.NewEpoch || s.Epoch > epoch {
			return logstore.Corrupt(format.RangeMeta, 0, fmt.Errorf("%s: epoch %d, but the last stream's is %d", format.MetaState, s.Epoch, epoch))
		}
		if s.Seq > 0 { // else nothing came since the epoch that is noted already
			s.Previous = EpochEnd{Epoch: s.Epoch, Seq: s.Seq}
		}
		s.Epoch, s.Seq = epoch, 0
	}
	if o.cfg.Retention == 0 && !o.cfg.ReadOnly && s.Oldest != (format.Point{}) {
		// What an earlier run stored is dropped. (What this one will not store never was.)
		if err := logstore.DeleteThrough(o.batch, s.Newest, s.Epoch, s.Seq); err != nil {
			return err
		}
		s.Floor, s.Oldest, s.Trimmed = s.Newest, format.Point{}, s.Total
	}
	if o.hasState && s.State == o.stored {
		return nil
	}
	return logstore.PutMeta(o.batch, format.MetaState, format.AppendState(nil, &s.State))
}

// gaps reads the gaps that are still in the log. It runs after state.
func (o *opener) gaps() (err error) {
	o.snap.gaps, err = logstore.Gaps(o.store, o.snap.Floor.TimeUS)
	return err
}

// references reads since when the log has references, and notes it if that begins or ends with this
// start. It runs after state.
func (o *opener) references() error {
	since, ok, err := logstore.Meta(o.store, format.MetaReferences, format.DecodeReferencesBegin)
	if err != nil {
		return err
	}
	of, known, err := logstore.Meta(o.store, format.MetaCollections, text)
	if err != nil {
		return err
	}
	s := o.snap
	// An older log does not say of which collections it is.
	if ok && (o.cfg.ReadOnly || o.cfg.References && (!known || of == o.cfg.Collections)) {
		s.references = &since
	}
	switch {
	case o.cfg.ReadOnly || known && s.references != nil:
		return nil
	case !o.cfg.References && !ok:
		return nil
	case !o.cfg.References:
		return errors.Join(o.batch.Delete(format.MetaKey(format.MetaReferences), nil), o.batch.Delete(format.MetaKey(format.MetaCollections), nil))
	case s.references == nil:
		s.references = &format.Point{TimeUS: s.TimeUS, Place: format.Place{Epoch: s.Epoch, Seq: s.Seq, Op: math.MaxUint32}}
		err = errors.Join(s.raiseVersion(o.batch, format.VersionReferences),
			logstore.PutMeta(o.batch, format.MetaReferences, format.AppendReferencesBegin(nil, *s.references)))
	}
	return errors.Join(err, logstore.PutMeta(o.batch, format.MetaCollections, []byte(o.cfg.Collections)))
}

// text decodes a meta value that is a string.
func text(b []byte) (string, error) { return string(b), nil }

// FormatVersion is the version of the formats that this package writes, of logs without references
// and #sync events.
const FormatVersion = format.Version

// uidStoreOf returns the ID of the UID store whose UIDs the log in st holds; false: it has none.
func uidStoreOf(st *pebblestore.Store) (id string, ok bool, err error) {
	return logstore.Meta(st, format.MetaUIDs, text)
}
