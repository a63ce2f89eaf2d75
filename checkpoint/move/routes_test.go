package move

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/traffic"
)

// What a pod adds and deletes while it is moved is added and deleted: nothing is lost, and nothing comes back.
func TestRoutesThatAPodChangesDuringItsMove(t *testing.T) {
	n := newNode(t, 3)
	var all []*traffic.Routes
	for _, path := range n.pods {
		all = append(all, must(traffic.StartRoutes(path, "10.9.0.1", "fd00:9::1"))(t))
	}
	time.Sleep(20 * time.Millisecond)
	for range 3 {
		for _, way := range [][2]string{{"lan0", "lan2"}, {"lan2", "lan0"}} {
			if r := must(Run(t.Context(), n.options(way[0], way[1])))(t); !r.Complete() {
				t.Errorf("%q", states(r))
			}
		}
	}
	for _, r := range all {
		if wrong := must(r.Stop())(t); len(wrong) > 0 || r.Changes < 1000 {
			t.Errorf("%d changes, %d wrong: %.300q", r.Changes, len(wrong), wrong)
		}
		t.Logf("%d changes, %d refused", r.Changes, r.Refused)
	}
	n.expectParent(t, "lan0", 2)
}

// The verification does not bring back what a pod deletes after its interface has switched, and the record follows the pod.
func TestVerificationLeavesAloneWhatThePodChanges(t *testing.T) {
	n := newNode(t, 2)
	for i, path := range n.pods {
		fresh.Run(t, path, "ip route add 10.70.0.0/16 via 10.9.0.1; ip route add 10.71.0.0/16 via 10.9.0.1; ip addr add 10.9.0.77/32 dev eth0; ip rule add from 10.9.0.77 table 77")
		sandbox := must(kernel.Open(path))(t)
		r := must(n.store.Load(fmt.Sprintf("c%d", i), "eth0"))(t)
		r.Interface = must(kernel.Capture(n.host, sandbox, must(n.host.Devices())(t), "eth0", kernel.CheckpointExtent))(t)
		sandbox.Close()
		if err := n.store.Save(r); err != nil {
			t.Fatal(err)
		}
	}
	opts := n.options("lan0", "lan2")
	opts.Progress = func(done, _ int) {
		if done == 2 {
			fresh.Run(t, n.pods[0], "ip route del 10.70.0.0/16; ip route replace 10.71.0.0/16 via 10.9.0.9; ip addr del 10.9.0.77/32 dev eth0; ip rule del from 10.9.0.77; ip route add 10.72.0.0/16 via 10.9.0.1")
		}
	}
	if r := must(Run(t.Context(), opts))(t); !r.Complete() {
		t.Errorf("%q", states(r))
	}
	has := fresh.Run(t, n.pods[0], "ip route show root 10.64.0.0/10; { ip addr 2>/dev/null; ip rule; } | grep 10.9.0.77 || true")
	if want := "10.71.0.0/16 via 10.9.0.9 dev eth0 \n10.72.0.0/16 via 10.9.0.1 dev eth0"; has != want {
		t.Errorf("the pod has\n%s, want\n%s", has, want)
	}
	fresh.Run(t, n.pods[1], "ip route show 10.70.0.0/16 | grep -q via; ip rule | grep -q 77")
	n.expectParent(t, "lan2", 0)
	routes := netstate.RoutesOf(must(n.store.Load("c0", "eth0"))(t).Interface.Routes)
	for gateway, want := range map[string]bool{"10.9.0.1": false, "10.9.0.9": true} {
		r := netstate.Route{Destination: netip.MustParsePrefix("10.71.0.0/16"), Gateway: netip.MustParseAddr(gateway), Table: 254, Protocol: 3, Type: 1}
		if routes.Has(r) != want {
			t.Errorf("the record has %s: %v", r, !want)
		}
	}
}
