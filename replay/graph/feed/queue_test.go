package feed

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"millrace/replay/graph"
	"millrace/replay/references"
)

// TestQueue pushes and pops batches of random sizes beside a slice.
func TestQueue(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const limit = 3000
	q := newQueue(limit)
	var want []graph.Change
	next, at := uint64(0), references.Position{}
	for step := range 2000 {
		if r.IntN(4) > 0 {
			batch := make([]graph.Change, []int{0, 1, 100, maxJoined - 100, maxJoined, maxJoined + 1, limit, limit + 1}[r.IntN(8)])
			for i := range batch {
				next++
				batch[i].Actor = next
			}
			room := len(want) == 0 || len(want)+len(batch) <= limit
			items := len(q.items)
			joins := items > 0 && len(q.items[items-1].changes)+len(batch) <= maxJoined
			at.Seq++
			if got := q.add(at, batch); got != room {
				t.Fatalf("step %d: %d changes beside %d are taken: %t", step, len(batch), len(want), got)
			}
			if !room {
				next -= uint64(len(batch))
			} else if want = append(want, batch...); joins != (len(q.items) == items) || q.items[len(q.items)-1].at != at {
				t.Fatalf("step %d: %d changes joined: %t", step, len(batch), !joins)
			}
			clear(batch) // it stays the caller's
		} else if i, ok := q.pop(); ok {
			if !slices.Equal(i.changes, want[:len(i.changes)]) {
				t.Fatalf("step %d: other changes than those pushed", step)
			}
			want = want[len(i.changes):]
		} else if len(want) > 0 {
			t.Fatalf("step %d: of %d changes none comes", step, len(want))
		}
		if q.len() != len(want) {
			t.Fatalf("step %d: %d changes, want %d", step, q.len(), len(want))
		}
	}
}

// TestQueueWaits waits for room until there is some, or the queue is closed, and for an item.
func TestQueueWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1)
		one := []graph.Change{{}}
		pushed := 0
		go func() {
			for range 4 {
				q.push(references.Position{}, one)
				pushed++
			}
		}()
		for want := 1; want <= 2; want++ {
			synctest.Wait()
			if pushed != want {
				t.Fatalf("%d batches are pushed, want %d", pushed, want)
			}
			<-q.more
			q.pop()
		}
		synctest.Wait()
		q.close()
		synctest.Wait()
		if _, ok := q.pop(); ok || pushed != 4 || q.len() != 0 {
			t.Errorf("a closed queue has %d changes, %d are pushed", q.len(), pushed)
		}
	})
}
