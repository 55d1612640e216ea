//go:build !cgo

package dict

import (
	"errors"
	"fmt"

	builder "github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/zstd"
)

// trainers returns klauspost's dictionary builder, with the lengths of strings that it may index.
func trainers() []trainer {
	var ts []trainer
	for _, hashBytes := range []int{5, 6, 8} {
		ts = append(ts, trainer{
			setting: fmt.Sprintf("klauspost, %d bytes hashed", hashBytes),
			train: func(events [][]byte, maxBytes int) (raw []byte, err error) {
				defer func() {
					// The builder panics on samples that it finds nothing in.
					if p := recover(); p != nil {
						raw, err = nil, fmt.Errorf("klauspost's dictionary builder: %v", p)
					}
				}()
				return builder.BuildZstdDict(events, builder.Options{
					MaxDictSize:    maxBytes - tableBytes,
					HashBytes:      hashBytes,
					ZstdDictID:     MinPrivateID,
					ZstdDictCompat: true,
					ZstdLevel:      zstd.SpeedFastest,
				})
			},
		})
	}
	return ts
}

// tableBytes is room for what precedes the content in a dictionary file.
const tableBytes = 512

// FinishContent makes a dictionary of chosen content; it needs libzstd, which this build lacks.
func FinishContent(content []byte, events [][]byte, id uint32) (*Dictionary, error) {
	return nil, errors.New("dictionary tables for chosen content are made by libzstd: build with CGO_ENABLED=1")
}
