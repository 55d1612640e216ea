// Package jetstream has the zstd dictionary that Jetstream v1 and its clients carry. It comes out
// of Jetstream's own Go module, so that this repository holds no copy.
//
// That module's package of models imports indigo's API types, and registers them when the process
// starts. A program that only needs the bytes can have them from any server: GET
// /dictionaries/1612007021.
package jetstream

import (
	"bytes"

	"github.com/bluesky-social/jetstream/pkg/models"
)

// Dictionary returns the dictionary file, for dict.Parse or any zstd decoder. It is the caller's.
// Its ID is dict.JetstreamID.
func Dictionary() []byte { return bytes.Clone(models.ZSTDDictionary) }
