// Package dict holds zstd dictionaries and everything that is done with them. It loads, checks and
// trains them, and compresses and decompresses events with them one by one.
//
// # Frames
//
// Every event is one zstd frame (RFC 8878) of its own, so that any event can be sent to any
// subscriber:
//
//	28 B5 2F FD │ descriptor │ [window] │ dictionary ID │ content size │ blocks …
//	  magic        1 byte      0 or 1      0, 1, 2 or 4     1 to 8
//
// Content size and dictionary ID are always there, a checksum never is: websockets and Pebble have
// theirs. Up to maxWindowBytes a frame is a single segment, without a window byte. A longer one
// declares a window of maxWindowBytes, so that a decoder that allows no more still takes it.
//
// A dictionary ID below 65536 takes two bytes in each frame instead of four, which is why the
// built-in dictionaries have such IDs.
//
// # Two encoders
//
// With cgo, Encoder is libzstd; without, it is klauspost/compress. Both make frames as above, and
// any decoder takes the frames of either. The pure Go one is compiled in both builds, for tests and
// comparison. Decoding is klauspost/compress in both.
//
// libzstd is the copy that Pebble links in any case through github.com/DataDog/zstd. That package's
// Go functions make a context per call, so this package declares the C functions it needs itself
// (libzstd.h) and calls them directly.
//
// # Concurrency
//
// A Dictionary is immutable. Encoder, Decoder and Registry are safe for concurrent use. An Encoder
// owns at most GOMAXPROCS compression contexts, made when first needed; a call that finds all of
// them busy waits for one. Registry.mu is the only lock: coders are made and closed under it, and
// work without it.
//
// Coders hold channels made outside of any testing/synctest bubble: do not share them with one.
package dict
