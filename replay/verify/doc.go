// Package verify checks a log that nobody has open: values, blocks, and what spans, references and
// meta values say of them. It reads the store and the formats, and shares nothing with the engine
// that it checks.
//
// One goroutine reads the blocks in order, several check each by itself, and one compares each with
// its neighbours.
package verify
