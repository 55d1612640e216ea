// Package format has the encodings of the event log: the keys and values that replay stores, and
// the websocket frames that it gives to readers. It is pure: no I/O, no goroutine, no clock. It
// keeps memory of its own only in pools.
//
//	sealer, concat     events, or blocks → a block and its values
//	index, slimindex   a block's columns, all or those that most readers need
//	references         what the records of a block's events point at, and its encoding
//	payload, page      a block's frames: packed, and unpacked
//	span, didindex     a summary of many blocks, the DIDs in it,
//	                   and copies of what passes every collection filter
//	meta               state, streams, dictionaries, gaps, pointers to blocks
//	key, trailer       where a value is stored, and what its last bytes say
//	wsframe            websocket frames of events
//	column, nametable  what the values above are made of
//
// Functions named AppendX append an encoding to a slice and return it. Those named DecodeX keep
// nothing of what they decode; those named OpenX alias it. Both take any bytes: bad ones give an
// error, and what is returned needs no further checks. Values are without trailers, unless a
// function says otherwise. What is decoded is immutable, and safe for concurrent use; builders and
// sealers are for one goroutine.
//
// The layouts are drawn in formats.go. A change that older code would misread raises Version.
package format
