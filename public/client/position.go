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
	stream, rest, ok := strings.Cut(s, "-")
	if !ok || stream == "" {
		return position{}, false
	}
	seqText, opText, ok := strings.Cut(rest, "-")
	if !ok {
		return position{}, false
	}
	seq, err := strconv.ParseInt(seqText, 10, 64)
	if err != nil || seq < 0 {
		return position{}, false
	}
	op, err := strconv.ParseUint(opText, 10, 32)
	return position{stream, seq, op}, err == nil
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
