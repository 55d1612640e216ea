// Package fdbtest runs a private FoundationDB server for tests. It is one fdbserver process found
// on PATH, in a temporary directory, on a port of its own, ended with the test. Built with -tags
// fdb only.
package fdbtest
