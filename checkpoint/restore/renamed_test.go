package restore

import (
	"testing"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/test/fresh"
)

// restore changes no interface because of another interface's record.
func TestTheNameIsAnothers(t *testing.T) {
	const down, up = "ip link set eth0 down; ip link set net1 down; ", "; ip link set eth0 up; ip link set net1 up"
	for name, test := range map[string]struct {
		change string
		says   map[string]string
	}{
		"swapped": {
			down + "ip link set eth0 name tmp0; ip link set net1 name eth0; ip link set tmp0 name net1" + up,
			map[string]string{"eth0": "eth0 was renamed: it is there as net1", "net1": "net1 was renamed: it is there as eth0"},
		},
		"swapped, and one with another MAC": {
			down + "ip link set eth0 name tmp0 address 02:00:00:00:0b:01; ip link set net1 name eth0; ip link set tmp0 name net1" + up,
			map[string]string{"net1": "net1 was renamed: it is there as eth0", "eth0": "it is there as net1 (the same index 77, kind and parent, with the MAC 02:00:00:00:0b:01"},
		},
		"one gone, and the other under its name": {
			"ip link del eth0; ip link set net1 down name eth0; ip link set eth0 up",
			map[string]string{"net1": "net1 was renamed: it is there as eth0", "eth0": "eth0 is gone, and its name is that of net1 now"},
		},
		"renamed, and one of the pod's own under its name": {
			"ip link set eth0 down name web0 up; ip link add eth0 link web0 type macvlan; ip addr add 10.77.0.1/24 dev eth0; ip link set eth0 up",
			map[string]string{"eth0": "eth0 was renamed: it is there as web0"},
		},
		"a name that a shell would run": {
			"ip link set eth0 down name '$(reboot)' up",
			map[string]string{"eth0": " ip link set '$(reboot)' name eth0)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			const state = "ip -o link; " + addressesAndRoutes
			p := newLiveSandbox(t)
			p.attach(t, "net1", 2)
			fresh.Run(t, p.netns, test.change)
			before := fresh.Run(t, p.netns, state)
			for dry, state := range map[bool]change.State{true: Blocked, false: change.Failed} {
				for _, o := range must(Run(t.Context(), Options{Store: p.store, DryRun: dry}))(t).Outcomes {
					if says := test.says[o.Attachment.IfName]; says != "" {
						p.expectOutcome(t, o, state, says)
					}
				}
			}
			if after := fresh.Run(t, p.netns, state); after != before {
				t.Errorf("it is\n%s\nand was\n%s", after, before)
			}
		})
	}
}

// Somebody else has built the interface again under its name. restore repairs it.
func TestTheNameIsItsOwnAgain(t *testing.T) {
	p := newLiveSandbox(t)
	p.attach(t, "net1", 2)
	fresh.Run(t, p.netns, "ip link del eth0; ip link add tmp0 link net1 type macvlan mode bridge; ip link set tmp0 name eth0; ip link set eth0 up")
	p.expectOutcome(t, p.restore(t, false), Repaired, "MAC is")
	p.expectOutcome(t, p.restore(t, false), AsRecorded)
}
