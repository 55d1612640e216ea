//go:build cgo

package dict

// #include "libzstd.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// coverLog is the logarithm of the trainer's table of frequencies: 6 MiB. More does not help.
const coverLog = 20

// trainers returns the settings worth trying. libzstd's fast cover trainer counts strings of d
// bytes and picks segments of k bytes that hold the most frequent. Long segments keep whole events,
// whose fields then lie as far apart as in the next event, so that offsets repeat; short ones pick
// words.
func trainers() []trainer {
	var ts []trainer
	for _, d := range []int{6, 8} {
		for _, k := range []int{64, 200, 400, 600, 800, 1200, 2000} {
			ts = append(ts, trainer{
				setting: fmt.Sprintf("libzstd fast cover, k %d, d %d", k, d),
				train: func(events [][]byte, maxBytes int) ([]byte, error) {
					return newSamples(events).cover(maxBytes, k, d)
				},
			})
		}
	}
	return ts
}

// samples are events back to back, as libzstd's trainers want them.
type samples struct {
	bytes []byte
	sizes []C.size_t
}

func newSamples(events [][]byte) samples {
	var s samples
	for _, e := range events {
		s.bytes = append(s.bytes, e...)
		s.sizes = append(s.sizes, C.size_t(len(e)))
	}
	return s
}

// cover trains a dictionary of at most maxBytes.
func (s samples) cover(maxBytes, k, d int) ([]byte, error) {
	raw := make([]byte, maxBytes)
	n := C.ZDICT_trainFromBuffer_fastCover(
		unsafe.Pointer(unsafe.SliceData(raw)), C.size_t(len(raw)),
		unsafe.Pointer(unsafe.SliceData(s.bytes)), unsafe.SliceData(s.sizes), C.uint(len(s.sizes)),
		C.ZDICT_fastCover_params_t{k: C.uint(k), d: C.uint(d), f: coverLog, accel: 1, zParams: zdictParams()})
	if C.ZDICT_isError(n) != 0 {
		return nil, fmt.Errorf("libzstd's trainer (k %d, d %d): %s", k, d, C.GoString(C.ZDICT_getErrorName(n)))
	}
	return raw[:n], nil
}

// FinishContent makes a dictionary of content that the caller chose, with the entropy tables that
// suit events. It needs libzstd.
func FinishContent(content []byte, events [][]byte, id uint32) (*Dictionary, error) {
	const maxTableBytes = 1 << 10
	s := newSamples(events)
	if len(content) == 0 || len(s.sizes) == 0 {
		return nil, fmt.Errorf("%w: %d bytes of content, %d events", errTooFewEvents, len(content), len(events))
	}
	raw := make([]byte, len(content)+maxTableBytes)
	n := C.ZDICT_finalizeDictionary(
		unsafe.Pointer(unsafe.SliceData(raw)), C.size_t(len(raw)),
		unsafe.Pointer(unsafe.SliceData(content)), C.size_t(len(content)),
		unsafe.Pointer(unsafe.SliceData(s.bytes)), unsafe.SliceData(s.sizes), C.uint(len(s.sizes)),
		zdictParams())
	if C.ZDICT_isError(n) != 0 {
		return nil, fmt.Errorf("libzstd's dictionary tables: %s", C.GoString(C.ZDICT_getErrorName(n)))
	}
	return WithID(raw[:n], id)
}

// zdictParams has the tables made for the level that is used. WithID replaces the ID.
func zdictParams() C.ZDICT_params_t {
	return C.ZDICT_params_t{compressionLevel: libzstdLevel, dictID: MinPrivateID}
}
