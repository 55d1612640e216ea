//go:build fdb

package fdbkv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"millrace/intern/kv"
)

// FoundationDB's error codes that mean something of their own here
// (https://apple.github.io/foundationdb/api-error-codes.html).
const (
	codeTooOld           = 1007
	codeNotCommitted     = 1020
	codeLocked           = 1038
	codeCommitMemory     = 1042
	codeBatchThrottled   = 1051
	codeReadMemory       = 1078
	codeTagThrottled     = 1213
	codeProxyThrottled   = 1223
	codeNoClusterFile    = 1515
	codeFutureVersion    = 1009
	codeProcessBehind    = 1037
	codeFirstClientError = 2000
	codeTransactionLarge = 2101
	codeKeyLarge         = 2102
	codeValueLarge       = 2103
	codeBadClusterFile   = 2104
)

// translate says in kv's words what an error of FoundationDB's means. commit says that a commit was
// under way.
//
//	conflict                                      ErrConflict
//	older than five seconds                       ErrTooOld
//	too large                                     ErrTooLarge
//	refused before it was tried: throttled,
//	  out of memory, behind, database locked      ErrUnavailable
//	commit_unknown_result, cancelled, timed out,
//	  cluster_version_changed, anything else
//	  below 2000 (conditions of the cluster)      ErrUnknownOutcome of a commit,
//	                                              ErrUnavailable of a read
//	no cluster file (the client looks once only),
//	  2000 and up (wrong use of the API, bugs)    itself, final
//
// If the context ended, its cause comes along.
func translate(ctx context.Context, err error, commit bool) error {
	code, ok := codeOf(err)
	if !ok {
		return err
	}
	switch code {
	case codeNotCommitted:
		return fmt.Errorf("%w: %w", kv.ErrConflict, err)
	case codeTooOld:
		return fmt.Errorf("%w: %w", kv.ErrTooOld, err)
	case codeTransactionLarge, codeKeyLarge, codeValueLarge:
		return fmt.Errorf("%w: %w", kv.ErrTooLarge, err)
	case codeLocked, codeCommitMemory, codeBatchThrottled, codeReadMemory, codeTagThrottled, codeProxyThrottled, codeFutureVersion, codeProcessBehind:
		return fmt.Errorf("%w: %w", kv.ErrUnavailable, err)
	}
	if code == codeNoClusterFile || code >= codeFirstClientError {
		return err
	}
	meaning := kv.ErrUnavailable
	if commit {
		meaning = kv.ErrUnknownOutcome
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w: %w", meaning, err, cause)
	}
	return fmt.Errorf("%w: %w", meaning, err)
}

// codeOf returns FoundationDB's code of an error. The binding passes on errors of the directory
// layer's allocator as text only, so their code is read from the text.
func codeOf(err error) (code int, ok bool) {
	if err == nil {
		return 0, false
	}
	if e, ok := errors.AsType[fdb.Error](err); ok {
		return e.Code, true
	}
	_, words, ok := strings.Cut(err.Error(), "FoundationDB error code ")
	if !ok {
		return 0, false
	}
	n, _ := fmt.Sscanf(words, "%d", &code)
	return code, n == 1
}
