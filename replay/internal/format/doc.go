// Package format has the encodings of the event log: the keys and values that replay stores, and the
// websocket frames that it gives to readers. It is pure: no I/O, no goroutine, no clock.
package format
