// Package admission decides which connections and requests are let in, and how much each client
// address may hold. Package public asks it before it reads, remembers or serves anything.
//
// # What it limits
//
//	accept ──▶ Conn: one unfinished handshake, in all and of its address (handshakes.go); a full
//	   │         table makes room for a new one
//	   │         request lines and headers over 32 KiB wait for a slot (headers.go)
//	   ▼
//	Admit ──▶ attempts a second and connections of the client's address (addresses.go)
//	   │
//	   ├────▶ Claim: larger messages wait for a slot (slots.go)
//	   └────▶ Quota: bytes that are remembered for the client (budget.go)
//
// An address is one IPv4 address or one IPv6 /64; unfinished handshakes count for the /48 too, as
// an entry of its own. Loopback has no limits per address, since a proxy may be there; the limits
// of all addresses together hold for it too. Until the request is read the socket's peer is
// charged, then the client, which a trusted proxy names in X-Forwarded-For.
//
// # One table
//
// All that is counted by address is in one map with one lock. An entry goes when nothing of its
// address is held and its attempts have refilled. That is at once if it never spent one, else when
// the table is full. A full table takes new addresses for unfinished handshakes only.
//
// # Concurrency
//
// All methods are safe for concurrent use. Admit, Leave, Quota and the handshake counts never wait.
// Only Claim and Conn.Read do: for a slot, and never longer than they were asked to.
//
// Controller.mu guards the table, Conn.mu the state of one connection. Both are leaves: no other
// lock is taken and nothing outside the package is called while one is held.
package admission
