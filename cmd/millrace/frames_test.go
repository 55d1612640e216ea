package main

import (
	"bytes"
	"errors"
	"io"
	"testing"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/events"

	"millrace/consume"
)

// identityFrame is a frame of one event.
func identityFrame(t testing.TB, seq int64) consume.Frame {
	return frameOf(t, seq, "#identity", &comatproto.SyncSubscribeRepos_Identity{
		Did: "did:plc:ewvi7nxzyoun6zhxrhs64oiz", Seq: seq, Time: "2026-11-20T00:00:00Z",
	})
}

func frameOf(t testing.TB, seq int64, typ string, body interface {
	MarshalCBOR(w io.Writer) error
}) consume.Frame {
	t.Helper()
	var buf bytes.Buffer
	header := events.EventHeader{Op: events.EvtKindMessage, MsgType: typ}
	if err := errors.Join(header.MarshalCBOR(&buf), body.MarshalCBOR(&buf)); err != nil {
		t.Fatal(err)
	}
	return consume.Frame{Epoch: 1, Seq: seq, Type: typ, Data: buf.Bytes()}
}
