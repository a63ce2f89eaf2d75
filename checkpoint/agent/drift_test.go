package agent

import (
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// An interface that goes although nobody wanted it is not taken away. Otherwise its pod would stay cut off after the
// next loss.
func TestWhatIsTakenAway(t *testing.T) {
	n := newNode(t, "lan0")
	host := must(kernel.OpenHost())(t)
	t.Cleanup(host.Close)
	asNIC := func(r checkpoint.Record) checkpoint.Record {
		r.Interface.Link.Kind, r.Interface.Parents = netstate.KindNIC, nil
		return r
	}
	for i, test := range []struct {
		name, change, parent string
		as                   func(checkpoint.Record) checkpoint.Record
		taken, back          bool
	}{
		{name: "nothing has happened", change: "true", back: true},
		{name: "it was deleted", change: "ip link del eth0", taken: true},
		{name: "it was set down", change: "ip link set eth0 down", taken: true},
		{name: "it is down as its parent is", change: "ip link set eth0 down", parent: "ip link set lan0 down"},
		{name: "it was renamed", change: "ip link set eth0 down; ip link set eth0 name web0; ip link set web0 up", back: true},
		{name: "it was renamed and is down", change: "ip link set eth0 down; ip link set eth0 name web0", taken: true},
		{name: "a NIC went with its driver", change: "ip link del eth0", as: asNIC},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := n.attach(t, "lan0", i+1)
			r := must(n.store.Load(p.key.ContainerID, "eth0"))(t)
			if test.as != nil {
				r = test.as(r)
			}
			fresh.Run(t, p.netns, test.change)
			if test.parent != "" {
				fresh.Run(t, "", test.parent)
				defer fresh.Run(t, "", "ip link set lan0 up")
			}
			is := presenceOf(host, r, []checkpoint.Record{r})
			if taken, back := is == away, is == present; taken != test.taken || back != test.back {
				t.Errorf("taken away %v, back %v, want %v and %v", taken, back, test.taken, test.back)
			}
		})
	}
}
