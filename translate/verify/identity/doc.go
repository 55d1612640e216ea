// Package identity gives the signing keys of accounts, from a cache that no caller waits for.
//
//	Key → memory → disk → queue → workers → PLC directory, export or host of did:web
//	        ▲       ▲                │
//	        └───────┴─── result ◀────┘
//
// Key answers with what is known and has the rest fetched. A key is current for a day, and is used
// as a stale one for a week if it cannot be fetched again. That an account has none counts for an
// hour. A failed fetch is repeated after a minute at the earliest. #identity events drop what is
// known (Changed), and failed signatures have it fetched anew (Refresh).
//
// # What is trusted
//
// The PLC directory is: the log of operations behind a DID document is not verified. Only when 16
// answers in a row were without a key, further ones count as failures of it. An export says nothing
// of an account that it lacks. DID documents must be of the DID that was asked for; their
// first key with the fragment #atproto counts, which must be of curve K-256 or P-256. Hosts of
// did:web are anybody's. They are asked over https and at public addresses only, which is checked
// when the connection is made.
//
// # What is bounded
//
//   - accounts on disk (2,000,000) and memory (Config.Bytes);
//   - fetches at once, eight of each kind, and accounts that wait, 4,096 of each kind;
//     what does not fit is dropped, and counts as not known;
//   - requests to the PLC directory: 100 a second, and none for a while after it has failed;
//   - a fetch: ten seconds, 64 KiB, 16 KiB of headers, three redirects.
//
// # Concurrency
//
// Directory.mu guards what is known and which fetches are under way. It is held while Pebble is
// read and written, never while anything is synced or fetched. Each worker is a goroutine. A fetch
// that was begun before Changed gives no key.
//
// # Formats
//
// The cache is a Pebble of its own. Numbers are big-endian.
//
//	"e" generation:u32 UID:u64    check:u64 fetched:u32 curve:u8 [key:33]
//	"x" identifier of a did:plc   the export's did:key; empty: none
//	"mformat"                     1
//	"msource"                     where it is filled from; absent while an export is being read
//	"mgeneration"                 generation:u32 entries:u32 entries of the one before:u32
//
// check is the xxhash64 of the DID: a cache beside another UID store has no wrong keys. fetched is
// in Unix seconds. curve is 0 for no key, 1 for K-256, 2 for P-256. There are two generations. A
// full one makes the older one go, so what was not asked for since is dropped. Another source
// empties the cache.
package identity
