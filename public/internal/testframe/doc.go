// Package testframe makes frames of a relay for the tests of public and of its client: valid to the
// translator, small, and without signatures. It is pure; what it returns is the caller's.
package testframe
