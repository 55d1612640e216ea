package public

import (
	"os"
	"testing"
	"time"
)

// machineZone is the browser's time zone.
var machineZone = time.Local

// TestMain runs the tests in a time zone that is not UTC: the times of the wires are always UTC.
func TestMain(m *testing.M) {
	time.Local = time.FixedZone("", 5400)
	os.Exit(m.Run())
}
