package inparallel_test

import (
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/inparallel"
)

func TestEachNumberOnceAndNoMoreAtATimeThanAllowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		goroutines, n := rapid.IntRange(1, 9).Draw(t, "goroutines"), rapid.IntRange(0, 100).Draw(t, "n")
		calls := make([]atomic.Int32, n)
		var running, most atomic.Int32
		inparallel.Do(goroutines, n, func(i int) {
			now := running.Add(1)
			for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
			}
			calls[i].Add(1)
			running.Add(-1)
		})
		for i := range calls {
			if got := calls[i].Load(); got != 1 {
				t.Errorf("%d was called %d times", i, got)
			}
		}
		if got := most.Load(); int(got) > goroutines {
			t.Errorf("%d calls at the same time, allowed are %d", got, goroutines)
		}
	})
}
