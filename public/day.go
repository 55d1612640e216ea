package public

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"math"
	"net/http"
	"os"
	"sync"
	"time"

	"millrace/public/internal/viewapi"
)

const (
	// sampleEvery is how often the server looks at what a sample has the most of.
	sampleEvery = 10 * time.Second
	// dayMinutes is how many samples are kept, one a minute.
	dayMinutes = 24 * 60
	// paceMinutes is how many of them say at which pace the disk fills.
	paceMinutes = 6 * 60
	// offlineMS is the lag of a minute in which there was no connection to the relay.
	offlineMS = math.MaxUint32
	// dayMagic begins the file. The samples follow, 28 bytes each, then their CRC-32C: 40,332
	// bytes in all, little-endian.
	dayMagic = "mrday\x00\x00\x01"
)

// sample is what the page's curves show of one minute.
type sample struct {
	Minute      uint32 // since 1970; 0: there is none
	LagMS       uint32 // the most, or offlineMS
	Subscribers uint32 // the most
	DiskBytes   int64  // of the log, the last
	FreeBytes   int64  // the last; negative: unknown
}

// day has the samples of the last 1,440 minutes. Those of minutes in which no server ran are
// missing.
type day struct {
	mu      sync.Mutex
	samples [dayMinutes]sample // by Minute modulo dayMinutes
	body    []byte             // as /status/day has them; nil: they have changed since
}

// add puts a sample together with what there is of its minute.
func (d *day) add(s sample) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := &d.samples[s.Minute%dayMinutes]
	if at.Minute == s.Minute {
		s.LagMS, s.Subscribers = max(s.LagMS, at.LagMS), max(s.Subscribers, at.Subscribers)
	}
	*at, d.body = s, nil
}

// lastLocked returns the samples of the last n minutes up to one, oldest first, nil for those that
// are missing. The first is not nil.
func (d *day) lastLocked(n, minute uint32) []*sample {
	var last []*sample
	for m := minute - n + 1; m <= minute; m++ {
		s := &d.samples[m%dayMinutes]
		if s.Minute != m {
			s = nil
		}
		if s != nil || last != nil {
			last = append(last, s)
		}
	}
	return last
}

// daysUntilFull is how long free disk lasts at the pace of the last six hours, at most 365 days.
// The pace is the slope of the least squares, as Prometheus' deriv has it. Nil: unknown.
func (d *day) daysUntilFull(minute uint32) *float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var n, sumX, sumY, sumXX, sumXY, first, free float64
	for i, s := range d.lastLocked(paceMinutes, minute) {
		if s == nil || s.FreeBytes < 0 {
			continue
		}
		if free = float64(s.FreeBytes); n == 0 {
			first = free // keeps the sums small
		}
		x, y := float64(60*i), free-first
		n, sumX, sumY, sumXX, sumXY = n+1, sumX+x, sumY+y, sumXX+x*x, sumXY+x*y
	}
	if n < 2 {
		return nil
	}
	slope := (sumXY - sumX*sumY/n) / (sumXX - sumX*sumX/n)
	return new(min(free/max(-slope, 1)/86400, 365))
}

// dayJSON is the answer of /status/day: a number for each minute, oldest first, null for none.
type dayJSON struct {
	EndS        int64      `json:"end_s"` // Unix time at which the last minute began
	LagS        []*float64 `json:"lag_s"`
	DiskBytes   []*int64   `json:"disk_bytes"`
	Subscribers []*uint32  `json:"subscribers"`
}

// json returns the answer of /status/day. It is shared: callers must not change it.
func (d *day) json(minute uint32) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.body != nil {
		return d.body
	}
	if d.samples[minute%dayMinutes].Minute != minute {
		minute-- // its first sample is yet to come
	}
	answer := dayJSON{60 * int64(minute), []*float64{}, []*int64{}, []*uint32{}}
	for _, s := range d.lastLocked(dayMinutes, minute) {
		var lag *float64
		var disk *int64
		var subscribers *uint32
		if s != nil {
			disk, subscribers = &s.DiskBytes, &s.Subscribers
		}
		if s != nil && s.LagMS != offlineMS {
			lag = new(float64(s.LagMS) / 1000)
		}
		answer.LagS, answer.DiskBytes, answer.Subscribers = append(answer.LagS, lag), append(answer.DiskBytes, disk), append(answer.Subscribers, subscribers)
	}
	body, _ := json.Marshal(answer) // numbers always can
	d.body = append(body, '\n')
	return d.body
}

// load takes the samples of a file. A missing one has none.
func (d *day) load(name string) error {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	rest, ok := bytes.CutPrefix(b, []byte(dayMagic))
	size := binary.Size(d.samples)
	if !ok || len(rest) != size+crc32.Size || binary.LittleEndian.Uint32(rest[size:]) != checksum(rest[:size]) {
		return errors.New("it is damaged, or of another version")
	}
	_, err = binary.Decode(rest[:size], binary.LittleEndian, &d.samples)
	return err
}

// save replaces the file, so that it is whole whenever the process or the machine dies.
func (d *day) save(name string) error {
	d.mu.Lock()
	samples, err := binary.Append(nil, binary.LittleEndian, &d.samples)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	f, err := os.Create(name + ".tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(binary.LittleEndian.AppendUint32(append([]byte(dayMagic), samples...), checksum(samples)))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), name)
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// minuteOf returns the minutes since 1970.
func minuteOf(t time.Time) uint32 { return uint32(t.Unix() / 60) }

// Run keeps the samples of the page's curves, and their file, until ctx is done.
func (s *Server) Run(ctx context.Context) error {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	saved := true
	save := func() {
		if s.cfg.DayFile == "" {
			return
		}
		err := s.status.day.save(s.cfg.DayFile)
		if err != nil && saved {
			s.cfg.Logger.Warn("the day of samples cannot be written: a restart loses the page's curves", "file", s.cfg.DayFile, "err", err)
		}
		saved = err == nil
	}
	for minute := minuteOf(time.Now()); ; {
		s.sample()
		select {
		case now := <-tick.C:
			if m := minuteOf(now); m != minute {
				minute = m
				save()
			}
		case <-ctx.Done():
			save()
			return nil
		}
	}
}

// sample looks at what the curves show.
func (s *Server) sample() {
	process := s.cfg.Process()
	now := sample{Minute: minuteOf(time.Now()), Subscribers: uint32(s.count.Load()), DiskBytes: s.events.diskBytes(), FreeBytes: -1}
	if r := process.Relay; r != nil && !r.Connected {
		now.LagMS = offlineMS
	} else if r != nil {
		now.LagMS = uint32(min((r.Lag + r.Pending).Milliseconds(), offlineMS-1))
	}
	if process.FreeBytes != nil {
		now.FreeBytes = *process.FreeBytes
	}
	s.status.day.add(now)
}

// handleDay reports what the page's curves show.
func (s *Server) handleDay(w http.ResponseWriter, _ *http.Request) {
	viewapi.WriteJSON(w, http.StatusOK, s.status.day.json(minuteOf(time.Now())))
}
