package client

import (
	"strconv"
	"strings"
)

// position is a parsed "<stream>-<seq>-<op>".
type position struct {
	stream string // "": none
	seq    int64
	op     uint64
}

func parsePosition(s string) (position, bool) {
	stream, rest, _ := strings.Cut(s, "-")
	seqText, opText, _ := strings.Cut(rest, "-")
	seq, seqErr := strconv.ParseInt(seqText, 10, 64)
	op, opErr := strconv.ParseUint(opText, 10, 32)
	if stream == "" || seqErr != nil || seq < 0 || opErr != nil {
		return position{}, false
	}
	return position{stream, seq, op}, true
}

// follows says whether p comes after q, which positions of different streams are taken to do: the
// new one is of a later epoch.
func (p position) follows(q position) bool {
	if p.stream != q.stream || p.seq > q.seq {
		return true
	}
	return p.seq == q.seq && p.op > q.op
}

func isCursor(s string) bool {
	if _, err := strconv.ParseInt(s, 10, 64); err == nil {
		return true
	}
	_, ok := parsePosition(s)
	return ok
}
