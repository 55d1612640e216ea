// Package verify decides whether a #commit or #sync frame is what its account has signed, and
// whether it follows on the account's last one (https://atproto.com/specs/sync).
//
// A Verifier does what one frame suffices for, in this order; the first Reason counts:
//
//	the frame, its CAR and commit are well formed    invalid_frame, too_big, invalid_car,
//	                                                 missing_block, cid_mismatch, invalid_commit
//	did and rev of the commit are the frame's        wrong_did, rev_mismatch
//	rev is at most five minutes ahead                rev_in_future
//	the signature is the account's, with a low S     bad_signature
//	each op is one that the protocol allows          invalid_op
//	the partial tree has what the op says at its     op_mismatch, invalid_tree,
//	path, and the CAR the op's record                missing_block, cid_mismatch
//	the tree without the ops is prevData             no_prev_data, prev_data_mismatch
//	there was a key                                  no_key
//
// Verdict.Follow adds what depends on the frames before: rev_old, rev_repeated, broken_chain. It
// only compares. So frames can be checked in parallel, and followed in the relay's order.
//
// # What the caller brings
//
// Verifier.Open names the account. Its key is the one of the moment, from a cache that does not
// wait: nil while it is not known. A bad_signature may mean that the key has changed: a caller that
// fetches it anew opens and checks the frame again. now is the caller's clock.
//
// A State is all that is kept of an account: 40 bytes, zero for one that is not known. Follow
// returns the next one. Only signed frames move it, whatever else is wrong with them, since the
// commit block is authentic then. So a broken chain is reported once. A frame without a key leaves
// the rev and forgets the data: the next commit is not compared with it.
//
// # What is not proven
//
// The order of the ops, since, time, blobs and the CID of the commit are not signed, and are not
// read. That a commit is the account's newest cannot be known. Blocks that no op and no node on its
// way names are not read either.
//
// # The tree
//
// A partial tree is read into the sequence of its keys and of the subtrees that the CAR lacks. The
// ops are undone in that sequence, and the root of what is left is computed. Where the result
// depends on a subtree that the CAR lacks, the reason is missing_block. See
// https://atproto.com/specs/repository#mst-structure.
//
// The oracle is indigo's atproto/repo. difference_test.go names where this decides otherwise, and
// the fuzz target holds the two equal everywhere else.
//
// Frames are untrusted. Each node is read once, none is deeper than its key's hash says, and
// nothing that a frame declares is allocated for. Ops and the keys of a tree, which may take much
// more memory than in the frame, are bounded. No goroutine, no I/O, no clock. A Verifier is
// scratch memory and belongs to one goroutine at a time. It parses the frame and hashes the records
// again: package translate knows nothing of it.
package verify
