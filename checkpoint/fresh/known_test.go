package fresh

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
	came := func(mtu uint32) kernel.Told { return kernel.Told{Route: &netstate.Route{MTU: mtu}} }
	for name, test := range map[string]struct {
		changes []kernel.Change
		want    int // how much is told, -1 for too much
	}{
		"one after the other":   {[]kernel.Change{{Before: []kernel.Told{came(1)}}, {Before: []kernel.Told{came(2)}}}, 2},
		"only a link":           {[]kernel.Change{{Before: []kernel.Told{came(1)}}, {Sorts: kernel.LinkChanged}}, 1},
		"too much at once":      {[]kernel.Change{{Before: []kernel.Told{came(1)}}, {TooMuch: true}}, -1},
		"too much, and more":    {[]kernel.Change{{TooMuch: true}, {Before: []kernel.Told{came(1)}}}, -1},
		"too much, all in all":  {[]kernel.Change{{Before: make([]kernel.Told, 40)}, {Before: make([]kernel.Told, 40)}}, -1},
		"it never ends":         {times(200, came(1)), -1},
		"another device has it": {[]kernel.Change{{Index: 9, TooMuch: true}, {Before: []kernel.Told{came(1)}}}, 1},
	} {
		s := &sandbox{namespace: at}
		r := &Refresher{sandboxes: map[attachment.Namespace]*sandbox{at: s}}
		for _, c := range test.changes {
			c.Namespace = at
			r.hearBefore([]kernel.Change{c})
		}
		told, known := s.told[0]
		got := len(told)
		if known && got == 0 {
			got = -1
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func times(n int, t kernel.Told) (changes []kernel.Change) {
	for range n {
		changes = append(changes, kernel.Change{Before: []kernel.Told{t}})
	}
	return changes
}
