// Package replay is the event log: it seals batches of events into blocks, commits them, keeps the
// newest in memory, and gives them to readers from a cursor on, through a filter.
package replay
