// Package ingest takes frames from the relay to the durable log: each once, in the relay's order.
//
//	Handle ─▶ job ─▶ translate ─▶ order, stamp ─▶ intern ─▶ hydrate ─▶ seal ─▶ commit ─▶ Log
//	          one    parallel     one             parallel  one        parallel  one
//
// # Jobs
//
// A job holds the frames of one future block. It takes frames until its oldest one is maxBlockAge
// old or it has its share of bytes. A job ends at a frame's end; an epoch or a gap begins a new
// one. While more than busyJobs are in flight a job that is not full keeps taking frames, however
// old it is. A job whose frames come to more bytes of JSON than a block may have becomes several
// blocks, one at a time. A frame that alone has more bytes than a block's frames may have is not
// copied: Handle returns once it is translated (largeframe.go).
//
// # Stages
//
// Workers translate and seal. One goroutine takes the jobs in the relay's order and stamps them.
// Several ask the resolvers for UIDs, if there are any. With Config.References one takes the jobs
// in the relay's order again, and fills in what their records had. One commits: sealed jobs that
// follow each other share one sync. What is in the log is then applied to the reference store.
//
// # Concurrency
//
// One goroutine calls Handle and Idle, and then Finish; Run runs beside it. All other methods are
// safe for concurrent use. A job belongs to one stage at a time. Pipeline.mu guards the job that
// takes frames and the times of those in flight; it is not held while anything waits. gate.mu and
// relayLag.mu are leaves.
//
// # Limits and back-pressure
//
// jobsInFlight jobs exist, rawsInFlight of them with frames. The JSON between order and disk, with
// the sources and subjects of its references, has a third of Config.InFlightBytes, or 8 MiB if that
// is less. When all are in use, or SetReading(false) was called, Handle waits, and so does the
// relay's socket: nothing else holds it back.
//
// # Failures
//
// A frame on which translation panics is dropped and counted. An error of a resolver, of the log or
// of the reference store ends Run with that error.
package ingest
