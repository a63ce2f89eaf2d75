package checkpoint

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/relink-cni/relink/pkg/netstate"
)

// An older record has an IPv6 route with the next hops of all interfaces in one, and the routes
// of daemons.
func TestTheRoutesOfAnOlderRecordAreItsOwn(t *testing.T) {
	r := everything()
	both, bgp := route("::/0", ""), route("10.0.0.0/8", "10.3.0.1")
	both.NextHops = []netstate.NextHop{
		{Gateway: netip.MustParseAddr("fe80::1"), Weight: 2}, {Gateway: netip.MustParseAddr("fe80::2"), Device: "net1", Weight: 1},
	}
	bgp.Protocol = 186
	r.Interface.Routes = []netstate.Route{bgp, manyHops(), both}
	r.Interface.Parents[0].Carried.Routes = r.Interface.Routes
	for version, want := range map[int]string{
		2: "[10.7.0.0/16 nexthop via 10.3.0.1 weight 2 onlink nexthop via 10.4.0.1 dev net1 weight 1 ::/0 nexthop via fe80::1 weight 2]",
		3: "[10.0.0.0/8 via 10.3.0.1 10.7.0.0/16 nexthop via 10.3.0.1 weight 2 onlink nexthop via 10.4.0.1 dev net1 weight 1 " +
			"::/0 nexthop via fe80::1 weight 2 nexthop via fe80::2 dev net1 weight 1]",
	} {
		r.Version = version
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		read, err := Decode(b)
		if err != nil || read.Version != Version {
			t.Fatal(read.Version, err)
		}
		if got := fmt.Sprint(read.Interface.Routes); got != want {
			t.Errorf("version %d: routes %s\nwant %s", version, got, want)
		}
		if got := fmt.Sprint(read.Interface.Parents[0].Carried.Routes); got != want {
			t.Errorf("version %d: own routes %s\nwant %s", version, got, want)
		}
	}
}
