package inparallel

import (
	"sync"
	"sync/atomic"
)

// Do calls call with each number from 0 to n-1, and returns when all calls have returned. At most the given number of calls
// run at the same time.
//
// Each goroutine makes many calls, one after the other. With a goroutine for each call, a restore spent 5% of its time
// on growing their stacks.
func Do(goroutines, n int, call func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(goroutines, n) {
		group.Go(func() {
			for i := int(next.Add(1) - 1); i < n; i = int(next.Add(1) - 1) {
				call(i)
			}
		})
	}
	group.Wait()
}
