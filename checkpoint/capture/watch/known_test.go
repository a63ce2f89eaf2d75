package watch

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// A pod may change its routes for hours while nobody reads its sandbox. The memory for that is bounded. A list that is
// not complete is dropped.
func TestWhatIsToldIsBounded(t *testing.T) {
	at := attachment.Namespace{Inode: 1}
	came := func(mtu uint32) kernel.Event { return kernel.Event{Route: &netstate.Route{MTU: mtu}} }
	for name, test := range map[string]struct {
		changes []kernel.Change
		want    int // how much is told, -1 for too much
	}{
		"one after the other":   {[]kernel.Change{{Before: []kernel.Event{came(1)}}, {Before: []kernel.Event{came(2)}}}, 2},
		"only a link":           {[]kernel.Change{{Before: []kernel.Event{came(1)}}, {}}, 1},
		"too much at once":      {[]kernel.Change{{Before: []kernel.Event{came(1)}}, {TooMuch: true}}, -1},
		"too much, and more":    {[]kernel.Change{{TooMuch: true}, {Before: []kernel.Event{came(1)}}}, -1},
		"too much, all in all":  {[]kernel.Change{{Before: make([]kernel.Event, 40)}, {Before: make([]kernel.Event, 40)}}, -1},
		"it never ends":         {repeatEvent(200, came(1)), -1},
		"another device has it": {[]kernel.Change{{Index: 9, TooMuch: true}, {Before: []kernel.Event{came(1)}}}, 1},
	} {
		s := &sandbox{namespace: at}
		r := &Refresher{sandboxes: map[attachment.Namespace]*sandbox{at: s}}
		for _, c := range test.changes {
			c.Namespace = at
			r.addEarlierChanges([]kernel.Change{c})
		}
		told, known := s.events[0]
		got := len(told)
		if known && got == 0 {
			got = -1
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func repeatEvent(n int, t kernel.Event) (changes []kernel.Change) {
	for range n {
		changes = append(changes, kernel.Change{Before: []kernel.Event{t}})
	}
	return changes
}
