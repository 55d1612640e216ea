package replay

import "millrace/translate"

// Gap says that the relay may have withheld events: all between From (the last one that came before
// it) and To (the frame that came after it) may be missing from the log.
type Gap struct {
	From, To translate.Position
	// TimeUS is the gap's own place in the log: it lies before every event stamped TimeUS or
	// later and after every earlier one. Take it from the Stamper, before the batch's events.
	// 0: directly before the batch's first event (which must then exist).
	TimeUS int64
}

// Input is what one block is sealed from: the events of consecutive whole frames of one epoch.
type Input struct {
	Epoch    uint32
	FirstSeq int64            // of the frames covered, also those that gave no event
	LastSeq  int64            // >= FirstSeq
	Gap      *Gap             // lies before the block's first frame; nil: none
	Batch    *translate.Batch // stamped, UIDs set; nil or empty: the block only moves the position
}

// Block is a sealed run of events, ready to be appended. It is immutable.
type Block struct {
	_ int
}

// Events returns how many events the block holds.
func (b *Block) Events() int { panic("not built yet") }

// Bytes returns how much memory the block takes.
func (b *Block) Bytes() int { panic("not built yet") }

// Seal makes a block of in: frames and compresses each event, and encodes the columns. It is safe
// for concurrent use, touches no disk, and keeps nothing of in.
func (l *Log) Seal(in Input) (*Block, error) { panic("not built yet") }
