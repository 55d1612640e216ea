package dict

import (
	"embed"
	"fmt"
	"io/fs"
)

// BuiltInID is the ID of the dictionary that BuiltIn returns; data/README.md says how it was made.
// The next one gets the next ID. The range is ours by choice, within what RFC 8878 leaves to
// private use, and WithID derives no ID from it.
const (
	BuiltInID      = 51001
	firstBuiltInID = 51000
	lastBuiltInID  = 51999
)

// ReservedID says whether an ID is kept for dictionaries that millrace ships.
func ReservedID(id uint32) bool {
	return id == JetstreamID || id >= firstBuiltInID && id <= lastBuiltInID
}

// JetstreamID is the ID of the dictionary that Jetstream v1 and its clients carry, which
// compress=true means on the wire. Package dict/jetstream has the file.
const JetstreamID = 1612007021

//go:embed data/*.zdict
var shipped embed.FS

// BuiltIn returns the dictionary trained for the v1 wire in the network's usual mix of events. Each
// call loads it anew, which takes about a millisecond.
func BuiltIn() *Dictionary {
	for _, d := range Shipped() {
		if d.ID() == BuiltInID {
			return d
		}
	}
	panic(fmt.Sprintf("dict: the built-in dictionary %d is not among the shipped ones", BuiltInID))
}

// Shipped returns all dictionaries that were ever built in, so that logs and clients that still use
// an old one can be served.
func Shipped() []*Dictionary {
	var ds []*Dictionary
	err := fs.WalkDir(shipped, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		raw, err := shipped.ReadFile(path)
		if err != nil {
			return err
		}
		d, err := Parse(raw)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		ds = append(ds, d)
		return nil
	})
	if err != nil {
		panic("dict: load shipped dictionaries: " + err.Error())
	}
	return ds
}
