package move

import (
	"os/exec"
	"testing"

	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// An interface that goes down during the move loses its routes. Nobody has deleted them: they come back, and stay recorded.
func TestAnInterfaceThatGoesDownDuringItsMove(t *testing.T) {
	vlan := netstate.Link{Kind: netstate.KindVLAN, VLAN: &netstate.VLAN{ID: 5, Protocol: netstate.Protocol8021Q}}
	// The story kernel expects that those with a VLAN pass: this kernel may have none.
	vlans := exec.Command("sh", "-c", "ip link add probe0 type veth peer name probe1 && ip link add link probe0 name probe0.5 type vlan id 5").Run() == nil
	fresh.IP(t, "", "link del probe0")
	for name, test := range map[string]struct {
		link      netstate.Link
		pod, host string
	}{
		"down":                  {netstate.Link{Kind: netstate.KindMacvlan, Macvlan: &netstate.Macvlan{Mode: "bridge"}}, "ip link set eth0 down", "true"},
		"down with its uplink":  {vlan, "true", "ip link set lan2 down"},
		"flaps with its uplink": {vlan, "true", "ip link set lan2 down; ip link set lan2 up"},
	} {
		if test.link.VLAN != nil && !vlans {
			continue
		}
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 1)
			if test.link.VLAN != nil {
				must(kernel.Create(n.host, n.host, must(n.host.Index("wire0"))(t), netstate.Link{Kind: netstate.KindVLAN, Name: "wire0.5", VLAN: vlan.VLAN}))(t)
			}
			fresh.IP(t, n.pods[0], "link del eth0")
			n.attach(t, 0, "eth0", test.link)
			opts := n.options("lan0", "lan2")
			opts.NoProbe = true
			opts.Progress = func(int, int) {
				fresh.Run(t, n.pods[0], test.pod)
				fresh.Run(t, "", test.host)
			}
			if r := must(Run(t.Context(), opts))(t); !r.Complete() {
				t.Errorf("%q", states(r))
			}
			if r := must(n.store.Load("c0", "eth0"))(t); len(r.Interface.Routes) != 2 {
				t.Errorf("the record has the routes %v", r.Interface.Routes)
			}
			if report := must(restore.Run(t.Context(), restore.Options{Store: n.store, DryRun: true}))(t); !report.Complete() {
				t.Errorf("not as recorded: %+v %v", report.Outcomes, report.Problems)
			}
			fresh.Run(t, n.pods[0], "ip route show default | grep via; ip -6 route show default | grep via")
		})
	}
}
