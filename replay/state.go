package replay

import (
	"fmt"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// StreamOf names the stream of a relay (host[:port], case does not matter) and an epoch.
func StreamOf(relay string, epoch uint32) translate.Stream { return format.StreamTag(relay, epoch) }

// firstEpoch is the epoch of an empty log.
const firstEpoch = 1

// maxRelayBytes bounds Config.Relay: the longest DNS name with a port.
const maxRelayBytes = 253 + 6

// maxEpochs bounds the list of streams. Epochs that old are far behind any retention.
const maxEpochs = 10_000

// addStream returns streams with one more epoch of relay, leaving out the oldest if there are too
// many. Two epochs must not share a tag: cursors could not tell them apart.
func addStream(streams []format.Stream, relay string, epoch uint32) ([]format.Stream, error) {
	s := format.Stream{Epoch: epoch, Relay: relay, Tag: format.StreamTag(relay, epoch)}
	for _, o := range streams {
		if o.Tag == s.Tag {
			return nil, fmt.Errorf("epoch %d of %s and epoch %d of %s have the same stream tag %s: skip this epoch with --new-epoch",
				o.Epoch, o.Relay, epoch, relay, s.Tag)
		}
	}
	if len(streams) >= maxEpochs {
		streams = streams[len(streams)-maxEpochs+1:]
	}
	return append(streams[:len(streams):len(streams)], s), nil
}
