// Command millrace is a daemon between an AT Protocol relay and the people who read it.
//
// main.go knows the sub-commands, exit codes and signals; config.go the flags of serve and their
// MILLRACE_* twins. serve.go builds the parts, runs them and stops them in order. Package
// ingest is the way of an event from the relay's frame to the durable log.
//
// # Concurrency
//
// The pipeline has one goroutine that reads (consume's), a few that translate and seal, and a few
// that intern. One more stamps in order, and one commits in order. A job, the frames of one future
// block, belongs to one of them at a time and is handed on through channels. The number of jobs is
// fixed. A reader that finds none free waits: so back-pressure reaches the relay's socket.
//
// # Stopping
//
// SIGINT or SIGTERM stops reading the relay; what was read drains into the log; subscribers are
// informed; the stores are closed. A second signal, a second later, ends the process at once.
package main
