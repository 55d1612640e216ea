package ingest

import (
	"context"

	"millrace/consume"
	"millrace/replay"
	"millrace/translate"
)

// frameShare divides the in-flight share: one part is for the JSON of all blocks between the
// ordering stage and the disk, and so for that of one frame. The others are for the blocks' plain
// and compressed values, which the store copies.
const frameShare = 3

// FrameJSONBytes returns how many bytes of JSON one frame may have, of a share for what is in
// flight.
func FrameJSONBytes(inFlight int64) int64 {
	return min(inFlight/frameShare, translate.MaxFrameJSONBytes)
}

// handleLargeLocked takes a frame that is larger than a block, without copying it. It waits until
// the frames before it are translated, and then until this one is, so that memory holds one such
// frame. mu is not held while it waits.
func (p *Pipeline) handleLargeLocked(ctx context.Context, f consume.Frame, gap *replay.Gap) error {
	if err := p.awaitRawsLocked(ctx); err != nil {
		return err
	}
	if err := p.fillLocked(ctx, f.Epoch, gap); err != nil {
		return err
	}
	p.filling.borrow(f)
	p.dispatchLocked()
	return p.awaitRawsLocked(ctx)
}

// awaitRawsLocked waits until no job has frames.
func (p *Pipeline) awaitRawsLocked(ctx context.Context) (err error) {
	p.mu.Unlock()
	defer p.mu.Lock()
	var raws [rawsInFlight][]byte
	for i := range raws {
		if raws[i], err = take(ctx, p.raws, p.metrics.blocked); err != nil {
			return err
		}
	}
	for _, raw := range raws {
		p.raws <- raw
	}
	return nil
}
