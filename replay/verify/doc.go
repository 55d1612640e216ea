// Package verify checks a log that no process has open: values, blocks, and what spans, block
// pointers and meta values say of them. It reads the store and the formats, and shares nothing
// with the engine that it checks.
//
// One goroutine reads the blocks in order, several check each by itself (block.go), and one
// compares each with its neighbours (chain.go). span.go compares each span with its blocks: list,
// counts, fingerprints of DIDs and subjects, and copies.
package verify
