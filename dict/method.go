package dict

import "github.com/klauspost/compress/zstd"

// Method is a library and its level: one way to make an Encoder.
type Method struct {
	name  string
	build func(*Dictionary) (coder, error)
}

// Methods returns the methods of this build worth comparing, those of libzstd only with cgo. The
// first measured best (docs/dictionaries.md): NewEncoder uses it.
func Methods() []Method {
	return append(libzstdMethods(), pureMethod("klauspost fastest", zstd.SpeedFastest), pureMethod("klauspost default", zstd.SpeedDefault))
}

func pureMethod(name string, level zstd.EncoderLevel) Method {
	return Method{name, func(d *Dictionary) (coder, error) { return newPureCoder(d, level) }}
}

// String names the library and the level.
func (m Method) String() string { return m.name }

// NewEncoder is dict.NewEncoder with method m.
func (m Method) NewEncoder(d *Dictionary) (*Encoder, error) {
	c, err := m.build(d)
	if err != nil {
		return nil, err
	}
	return &Encoder{d: d, c: c}, nil
}
