package counts

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var testStart = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// TestCountsOfMany: of very many collections the rare ones are counted together, and none is lost.
func TestCountsOfMany(t *testing.T) {
	c := New(testStart, 0)
	c.advance(Step * 3 / 2)
	const many = 10 * maxCounted
	for i := range many {
		for range 3 {
			c.collection("com.example.frequent").add(c.step, 1)
		}
		c.collection(fmt.Sprintf("com.example.junk%d", i)).add(c.step, 1)
	}
	got := c.Read(Step * 2)
	if n := len(got.Collections); n > maxCounted {
		t.Errorf("%d collections are counted apart", n)
	}
	if first := got.Collections[0]; first.Name != "com.example.frequent" || first.Total != 3*many {
		t.Errorf("the first is %s with %d", first.Name, first.Total)
	}
	total, recent := got.Other.Total, int64(got.Other.Recent[1])
	for _, n := range got.Collections {
		total += n.Total
		recent += int64(n.Recent[1])
	}
	if total != 4*many || recent != 4*many || got.Step != 1 {
		t.Errorf("%d in all, %d in step %d; want %d in step 1", total, recent, got.Step, 4*many)
	}
}

func TestCountsWhileNothingCame(t *testing.T) {
	c := New(testStart, 5*time.Second)
	if got := c.Read(5 * time.Second); got.Step != -1 || len(got.Creates.Recent) != 0 {
		t.Errorf("at once: step %d, %v", got.Step, got.Creates.Recent)
	}
	c.kinds[countedCreate].add(c.step, 7)
	if got := c.Read(5*time.Second + Step); got.Step != 0 || !cmp.Equal(got.Creates, Count{7, []uint32{7}}) {
		t.Errorf("after a step: step %d, %v", got.Step, got.Creates)
	}
	for step := range time.Duration(Steps) {
		c.Read(5*time.Second + (1+step)*Step)
		c.kinds[countedCreate].add(c.step, 1)
	}
	if got := c.Read(1000 * time.Hour); got.Creates.Total != 7+Steps || cmp.Diff(make([]uint32, Steps), got.Creates.Recent) != "" {
		t.Errorf("much later: %v", got.Creates)
	}
}
