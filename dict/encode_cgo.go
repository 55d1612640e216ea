//go:build cgo

package dict

// #cgo noescape ZSTD_compress2
// #cgo nocallback ZSTD_compress2
// #include "libzstd.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	// Links libzstd; its Go functions are not used.
	_ "github.com/DataDog/zstd"
)

// libzstdLevel is libzstd's level for events; docs/dictionaries.md has the measurements.
const libzstdLevel = 1

// Libzstd says whether an Encoder is libzstd; else it is klauspost/compress.
const Libzstd = true

func newCoder(d *Dictionary) (coder, error) { return newLibzstdCoder(d) }

// checkLoads reports whether libzstd takes raw as a dictionary.
func checkLoads(raw []byte) error {
	cdict, err := digest(raw)
	if err != nil {
		return err
	}
	C.ZSTD_freeCDict(cdict)
	return nil
}

// libzstdCoder is the coder of libzstd. Its memory is C's until close.
type libzstdCoder struct {
	cdict *C.ZSTD_CDict // read-only, shared by all contexts; nil without dictionary

	// idle holds the contexts that are not in use, nil for those not yet made. Their number is
	// fixed, so a goroutine that has taken them all knows that no call runs.
	idle chan *C.ZSTD_CCtx

	once   sync.Once
	closed chan struct{}
}

func newLibzstdCoder(d *Dictionary) (*libzstdCoder, error) {
	c := &libzstdCoder{
		idle:   make(chan *C.ZSTD_CCtx, runtime.GOMAXPROCS(0)),
		closed: make(chan struct{}),
	}
	for range cap(c.idle) {
		c.idle <- nil
	}
	if d != nil {
		cdict, err := digest(d.raw)
		if err != nil {
			return nil, fmt.Errorf("make encoder with dictionary %d: %w", d.id, err)
		}
		c.cdict = cdict
	}
	return c, nil
}

// digest makes libzstd's own form of a dictionary. It copies raw.
func digest(raw []byte) (*C.ZSTD_CDict, error) {
	cdict := C.ZSTD_createCDict(unsafe.Pointer(unsafe.SliceData(raw)), C.size_t(len(raw)), libzstdLevel)
	if cdict == nil {
		return nil, errors.New("libzstd cannot use its contents")
	}
	return cdict, nil
}

func (c *libzstdCoder) append(dst, src []byte) ([]byte, bool) {
	var ctx *C.ZSTD_CCtx
	select {
	case <-c.closed:
		return dst, false
	case ctx = <-c.idle:
	}
	if ctx == nil {
		if ctx = c.newContext(); ctx == nil {
			c.idle <- nil
			return dst, false
		}
	}
	room := dst[len(dst):cap(dst)]
	n := C.ZSTD_compress2(ctx,
		unsafe.Pointer(unsafe.SliceData(room)), C.size_t(len(room)),
		unsafe.Pointer(unsafe.SliceData(src)), C.size_t(len(src)))
	c.idle <- ctx
	if C.ZSTD_isError(n) != 0 {
		return dst, false
	}
	return dst[:len(dst)+int(n)], true
}

// newContext returns nil if there is no memory.
func (c *libzstdCoder) newContext() *C.ZSTD_CCtx {
	ctx := C.ZSTD_createCCtx()
	if ctx == nil {
		return nil
	}
	for _, p := range []struct{ param, value C.int }{
		{C.millrace_c_compressionLevel, libzstdLevel},
		{C.millrace_c_windowLog, windowLog},
		{C.millrace_c_contentSizeFlag, 1},
		{C.millrace_c_checksumFlag, 0},
		{C.millrace_c_dictIDFlag, 1},
	} {
		if C.ZSTD_isError(C.ZSTD_CCtx_setParameter(ctx, p.param, p.value)) != 0 {
			C.ZSTD_freeCCtx(ctx)
			return nil
		}
	}
	if c.cdict != nil && C.ZSTD_isError(C.ZSTD_CCtx_refCDict(ctx, c.cdict)) != 0 {
		C.ZSTD_freeCCtx(ctx)
		return nil
	}
	return ctx
}

// close waits until no context is in use and frees all memory, once.
func (c *libzstdCoder) close() {
	c.once.Do(func() {
		close(c.closed)
		for range cap(c.idle) {
			C.ZSTD_freeCCtx(<-c.idle) // takes nil
		}
		C.ZSTD_freeCDict(c.cdict) // takes nil
	})
}
