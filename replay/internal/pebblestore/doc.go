// Package pebblestore is the event log's Pebble database: its options, and reading ahead in its
// value files. What opens it, guards it and ends it when it fails is package pebbleguard.
//
// Safe for concurrent use.
package pebblestore
