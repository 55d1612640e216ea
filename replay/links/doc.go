// Package links answers who points at a DID or an AT URI: how many records and accounts, and which.
// What it reads is derived from the record table of the reference store, and kept in its batches.
package links
