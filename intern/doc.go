// Package intern gives every DID and AT URI a uint64, its UID, for ever. One string has one UID and
// one UID stands for one string; bytes are identity. A UID is sequence << (64-p) | n. Each of the
// 2^p sequences is a counter, n is from 1, and p, the prefix bits, is fixed with the store.
//
// # Way of a batch
//
// Resolve takes a block's strings in one call. What the caches know is done at once. The rest goes
// to the workers, by hash of the DID, so that no two transactions of one Interner touch the same
// string. A worker puts all that waits for it, up to some hundreds of strings, into one transaction
// of the store (package kv):
//
//	read   the counter of its sequence, the DIDs, the collections   (conflicting reads)
//	read   the URIs, by the numbers of DID and collection
//	write  a UID for each that has none: forward keys, one chunk for the UIDs, the counter
//
// A transaction that fails is begun anew and reads again what is there, which after an unknown
// outcome may be its own writes. A worker stays with its randomly chosen sequence until that is
// exhausted, or until the counter is not what the worker left there. Then another worker uses it,
// and this one draws another.
//
// A call of few strings that finds no transaction in flight does not go to the workers. Its caller
// interns all of them in one transaction. Until that ends the workers begin none (direct.go). So a
// quiet stream costs one commit a block. On a store that can be shared this is not done.
//
// A Request may be any DID or AT URI, such as the subject of a reference. It is interned with its
// authority in the same call. A DID is its own authority. The authority of at://DID/… is the DID.
// That of at://handle/… is the AT URI at://handle, since a bare handle has no UID.
//
// Results and caches come only after a commit, so every UID that leaves the package is durable.
//
// A caller that waits for the UID of a string, a filter say, registers it with Await. Resolve looks
// into the registry between commit and return, so that the UID is known there before an event has
// it.
//
// # Several Interners on one store
//
// On a store that can be shared (kv.Limits.Shared), package internal/share divides the strings
// among the Interners, and finds the UIDs that the others have given. It spares repeated
// transactions; UIDs are right without it, since transactions that conflict fail. foreign.go is
// what it uses of an Interner.
//
// # Keys and values
//
//	00 "store"               -> 01 p stripe-bits store-ID(16)
//	00 "floor"               -> n below which no sequence begins; see SkipAhead
//	00 "collections"         -> last collection number
//	00 "import"              -> progress of an import; while it exists the store does not open
//	00 "imported"            -> header of the dump that the store was made from
//	01 sequence(4)           -> last n given out
//	02 NSID                  -> collection number
//	03 number(4)             -> NSID
//	04 instance(8)           -> its heartbeat and sequences; see internal/share
//	1f name                  -> UID            f is the form; see codec.appendKey
//	30 UID(8)                -> chunk: the names of this UID and of those that follow;
//	                         see chunk.go
//
// Sizes in parentheses are big-endian bytes; all other numbers are varints. Collection numbers do
// not leave the store. A string is found in one read after its DID and collection; a UID is found
// in the last chunk at or before it.
//
// # Concurrency
//
// An Interner is safe for concurrent use. Each worker is one goroutine that owns its transaction's
// buffers. Interner.working and then Interner.numbering are taken first and held through a
// transaction; all other locks are leaves: none is held while another is taken.
package intern
