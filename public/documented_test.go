package public

import (
	"testing"
	"time"

	"millrace/replay"
)

// TestDocumentedNumbers: limits and times are those that docs/wire.md and the fields of Config
// name.
func TestDocumentedNumbers(t *testing.T) {
	d, c := defaultTiming(), Config{}.withDefaults()
	for what, n := range map[string][2]int64{
		"pings": {int64(d.ping), int64(30 * time.Second)}, "silence": {int64(d.silent), int64(90 * time.Second)}, "silence, by unread KiB": {slowestBytesPerSecond, 1024},
		"a message": {int64(d.message), int64(10 * time.Second)}, "sending without end": {int64(d.flood), int64(time.Minute)}, "the rest of a frame": {int64(d.grace), int64(5 * time.Second)},
		"a body": {int64(d.body), int64(5 * time.Second)}, "a wait for an update's turn": {int64(slotPatience * d.message), int64(40 * time.Second)},
		"collections": {maxWantedCollections, 100}, "DIDs": {maxWantedDIDs, 10_000}, "subjects": {maxWantedSubjects, 10_000}, "sources": {maxWantedSources, 100},
		"heartbeat": {maxHeartbeatSeconds, 3600}, "a message's bytes": {maxMessageBytes, 10_000_000}, "a small update": {smallMessageBytes, 4 << 10}, "a medium one": {mediumMessageBytes, 1 << 20},
		"updates a second": {updatesPerSecond, 1}, "updates at once": {updateBurst, 20}, "listed gaps": {maxListedGaps, 1000},
		"entries of /uids": {maxLookups, 1000}, "its body": {maxLookupBytes, 2 << 20}, "bodies at once": {batchesAtOnce, 8},
		"a plan": {maxPlanBytes, 2 << 20}, "a small plan": {smallPlanBytes, 16 << 10}, "an error of v2": {maxV2ErrorBytes, 1024}, "cursors that are times": {firstTimeCursor, 1_000_000_000_000_000},
		"collections of the status": {statusCollections, 20}, "steps of its history": {replay.CountSteps, 150}, "milliseconds of a step": {replay.CountStep.Milliseconds(), 2000},
		"minutes of a day": {dayMinutes, 1440}, "minutes of the pace": {paceMinutes, 360}, "code of a trimmed place": {closeTrimmed, 4001},
		"MaxConnections": {int64(c.MaxConnections), 20_000}, "MaxConnectionsPerIP": {int64(c.MaxConnectionsPerIP), 100}, "MaxHandshakes": {int64(c.MaxHandshakes), 512},
		"AttemptsPerSecond": {int64(c.AttemptsPerSecond), 10}, "AttemptBurst": {int64(c.AttemptBurst), 200}, "SlowTimeout": {int64(c.SlowTimeout), int64(30 * time.Second)},
		"ClientBytes": {c.ClientBytes, 32 << 20}, "ChunkBytes": {c.ChunkBytes, 32 << 20},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: %d, documented as %d", what, n[0], n[1])
		}
	}
}
