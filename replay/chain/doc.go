// Package chain keeps what the last commit of each account has left, its verify.State, so that the
// next one can be compared with it (docs/verification.md).
//
// # Exact after a crash
//
// The store is at the log's position, or one Commit ahead of it. Commit is called, and synced,
// before the frames that the states are of are appended to the log. It also keeps the states that
// it replaces. Begin is given the log's position:
//
//   - The store is there: it goes on.
//   - The position before its last Commit is there: the log did not get those frames, and the relay
//     sends them again. Begin puts back what that Commit replaced.
//   - Neither: the log went on without the store, or was replaced. Begin forgets all accounts.
//     What frames were missed is unknown, and so the next commit of each account is not compared.
//
// So a crash makes no chain look broken, and hides none that is.
//
// # Memory
//
// States that are not committed yet are kept by account. They are of frames in flight, of which
// they take less than the frames do. All else is Pebble's.
//
// # Format
//
// An account is the first 16 bytes of its DID's SHA-256. Numbers are little-endian. Pebble has
// checksums.
//
//	01                  version:u32 (2) | one account in so many:u64 | position
//	02                  position before the last Commit | account state … that it replaced
//	03 account          state
//
//	position = epoch:u32 | seq:u64        state = rev:u64 | data, 32 bytes
//
// # Concurrency
//
// One goroutine calls Get and Set, another Commit. The rest is safe for concurrent use.
package chain
