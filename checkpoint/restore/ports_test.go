package restore

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/netstate"
)

// port is NIC number n as a port of the one card that all of them are on, "" for a port
// that is not known.
func port(name string, n int, number string) netstate.Device {
	d := nic(name, n)
	d.BusAddress, d.DevPort = "0000:3b:00.0", number
	return d
}

// bondOf has the devices as members.
func bondOf(members ...netstate.Device) netstate.Device {
	d := bond("bond4")
	for _, m := range members {
		d.Bond.Members = append(d.Bond.Members, netstate.Member{Name: m.Name, NIC: m.NIC})
	}
	return d
}

func noMAC(d netstate.Device) netstate.Device { d.PermanentMAC = ""; return d }

// One card has two ports at one bus address.
func TestPlanTellsThePortsOfACardApart(t *testing.T) {
	const isEth1 = "eth0 is not there, and eth1 in its place is the recorded NIC eth1 (permanent MAC 52:54:00:00:00:02): " +
		"if it is to be eth0, say so by --parent eth0=eth1 ?"
	bond4 := up(4, bond("bond4"), 0)
	both := bondOf(port("eth0", 1, "0"), port("eth1", 2, "1"))
	oldBoth := bondOf(port("eth0", 1, ""), port("eth1", 2, ""))
	enslave := func(name, was string) string {
		if name == was {
			return fmt.Sprintf("enslave %s to bond4: it was a member of bond4 when recorded and is free", name)
		}
		return fmt.Sprintf("enslave %s to bond4: it was a member of bond4 as %s when recorded and is free", name, was)
	}
	planTests{
		"only the second is there": {
			there: devices{bond4, down(3, port("eth1", 2, "1"), 0)}, chains: one(both),
			want: said{On: list("bond4"), Steps: list(enslave("eth1", "eth1")),
				Problems: list("bond4 lacks its member: eth0 (permanent MAC 52:54:00:00:00:01, bus address 0000:3b:00.0) is not there ?")},
		},
		"only the second is there, of a record without ports": {
			there: devices{bond4, down(3, port("eth1", 2, "1"), 0)}, chains: one(oldBoth),
			want: said{On: list("bond4"), Steps: list(enslave("eth1", "eth1")), Problems: list("bond4 lacks its member: " + isEth1)},
		},
		"only the second is there, which another record names": {
			there: devices{up(3, port("eth1", 2, "1"), 0)}, chains: []chain{{port("eth0", 1, "")}, {port("eth1", 2, "")}},
			want: said{On: list("", "eth1"), Broken: list(isEth1)},
		},
		"the card was exchanged": {
			there: devices{bond4, down(2, port("eth0", 8, "1"), 0), down(3, port("eth1", 9, "0"), 0)}, chains: one(both),
			want: said{On: list("bond4"), Steps: list(enslave("eth1", "eth0"), enslave("eth0", "eth1")), Notes: list(
				"eth1 is another card in the place of eth0 (bus address 0000:3b:00.0; permanent MAC 52:54:00:00:00:09, recorded 52:54:00:00:00:01)",
				"eth0 is another card in the place of eth1 (bus address 0000:3b:00.0; permanent MAC 52:54:00:00:00:08, recorded 52:54:00:00:00:02)")},
		},
		"the card was exchanged, and the record has no ports": {
			there: devices{bond4, down(2, port("eth0", 8, "1"), 0), down(3, port("eth1", 9, "0"), 0)}, chains: one(oldBoth),
			want: said{On: list("bond4"), Problems: list(
				"bond4 lacks its member: eth0 could be eth0 or eth1 (same bus address 0000:3b:00.0): say which by --parent eth0=eth0",
				"bond4 lacks its member: eth1 could be eth0 or eth1 (same bus address 0000:3b:00.0): say which by --parent eth1=eth0")},
		},
		"the card was exchanged, and one of the new ports is there": {
			there: devices{up(3, port("eth1", 9, "0"), 0)}, chains: []chain{{port("eth0", 1, "")}, {port("eth1", 2, "")}},
			want: said{On: list("", ""), Broken: list(
				"eth1 could be eth0 or eth1 (same bus address 0000:3b:00.0): say which by --parent eth0=eth1 ?",
				"eth1 could be eth1 or eth0 (same bus address 0000:3b:00.0): say which by --parent eth1=eth1 ?")},
		},
		"the other port alone is no match": {
			there: devices{up(3, port("eth5", 9, "1"), 0)}, chains: one(port("eth0", 1, "0")),
			want: said{On: list(""), Broken: list("eth0 (permanent MAC 52:54:00:00:00:01, bus address 0000:3b:00.0) is not there ?")},
		},
		"a driver that tells no MACs": {
			there:  devices{up(2, noMAC(port("eth5", 0, "1")), 0), up(3, noMAC(port("eth6", 0, "0")), 0)},
			chains: []chain{{noMAC(port("eth0", 0, "0"))}, {noMAC(port("eth1", 0, "1"))}},
			want: said{On: list("eth6", "eth5"), Notes: list(
				"eth0 is now eth6 (same bus address 0000:3b:00.0)", "eth1 is now eth5 (same bus address 0000:3b:00.0)")},
		},
		"the operator makes one NIC of two members": {
			there: devices{bond4, enslaved(3, port("eth1", 2, "1"), 4)}, chains: one(bondOf(port("eth1", 2, "1"), port("eth0", 1, "0"))),
			mapped: map[string]string{"eth0": "eth1"},
			want:   said{On: list("bond4"), Problems: list("bond4 lacks its member: eth0 would be eth1, which is its member eth1 already")},
		},
		"a NIC that told nothing does not take the name's new owner": {
			there: devices{up(3, port("eth0", 2, "1"), 0)}, chains: []chain{{plain(netstate.KindNIC, "eth0")}, {port("eth1", 2, "1")}},
			want: said{On: list("", "eth0"), Notes: list("eth1 is now eth0 (same permanent MAC 52:54:00:00:00:02)"), Broken: list(
				"eth0 is not there, and eth0 in its place is the recorded NIC eth1 (permanent MAC 52:54:00:00:00:02): if it is to be eth0, say so by --parent eth0=eth0 ?")},
		},
	}.run(t)
}

// drawNIC is a NIC of the number's own MAC, or of a new one, or of none that is known, on
// one of two cards with two ports each.
func drawNIC(t *rapid.T, name string, macs ...int) netstate.Device {
	d := nic(name, rapid.SampledFrom(macs).Draw(t, "MAC"))
	if d.PermanentMAC == hardware(0).PermanentMAC {
		d.PermanentMAC = ""
	}
	d.BusAddress = rapid.SampledFrom([]string{"0000:3b:00.0", "0000:5e:00.0"}).Draw(t, "bus")
	d.DevPort = rapid.SampledFrom([]string{"", "0", "1"}).Draw(t, "port")
	return d
}

// Whatever ports come back, and whatever of them is known: no NIC becomes two of the
// recorded ones, and a NIC that has its recorded MAC is found by it.
func TestNoNICBecomesTwoOfTheRecorded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		there := devices{up(20, bond("bond4"), 0)}
		names := rapid.Permutation([]string{"eth1", "eth2", "eth3", "eth4", "enp1", "enp2"}).Draw(t, "names")
		for n := range rapid.IntRange(0, 5).Draw(t, "NICs") {
			d := drawNIC(t, names[n], 0, n+1, 11+n)
			there = append(there, netstate.LiveDevice{Device: d, Index: n + 1, MasterIndex: rapid.SampledFrom([]int{0, 20}).Draw(t, "master")})
		}
		var chains []chain
		var members []netstate.Device
		for n := 1; n <= 4; n++ {
			d := drawNIC(t, fmt.Sprintf("eth%d", n), n)
			if rapid.Bool().Draw(t, "member") {
				members = append(members, d)
				continue
			}
			chains = append(chains, chain{d})
		}
		chains = append(chains, chain{bondOf(members...)})
		p := NewParentPlan(there, named(chains...), ParentOptions{})
		became := map[int]string{}
		claim := func(was netstate.Member, is netstate.LiveDevice) {
			if other, twice := became[is.Index]; twice {
				t.Fatalf("%s (%+v) became %s and %s", is.Name, is.NIC, other, was.Name)
			}
			became[is.Index] = was.Name
		}
		for _, m := range named(chains...) {
			index, _, problem := p.find(asNIC(m))
			if problem == nil {
				claim(m, p.devices[index])
			}
			for _, d := range there {
				if d.PermanentMAC == m.PermanentMAC && (problem != nil || p.devices[index].Index != d.Index) {
					t.Fatalf("%+v is there as %s, and was not found: %v", m, d.Name, problem)
				}
			}
		}
		now := p.chain(chains[len(chains)-1]).now[0].Bond.Members
		for i, m := range now {
			if slices.Contains(now[:i], m) {
				t.Fatalf("the bond has %+v twice", m)
			}
		}
	})
}

func TestADeviceIsMistakenForAnother(t *testing.T) {
	eth := up(2, nic("eth1", 1), 0)
	renamed := eth
	renamed.Name = "lan0"
	untold := up(2, plain(netstate.KindNIC, "eth1"), 0)
	for name, test := range map[string]struct {
		planned, now netstate.LiveDevice
		want         string
	}{
		"the same":                 {eth, eth, ""},
		"renamed":                  {eth, renamed, ""},
		"a NIC that tells nothing": {eth, untold, ""},
		"another NIC under the name": {eth, up(2, nic("eth1", 2), 0), "it is another NIC (permanent MAC 52:54:00:00:00:02, " +
			"bus address 0000:00:02.0), not that one (permanent MAC 52:54:00:00:00:01, bus address 0000:00:01.0)"},
		"another port": {up(2, noMAC(port("eth1", 1, "0")), 0), up(2, noMAC(port("eth1", 1, "1")), 0),
			"it is another NIC (permanent MAC , bus address 0000:3b:00.0, port 1), not that one (permanent MAC , bus address 0000:3b:00.0)"},
		"another kind":    {up(4, bond("bond4"), 0), up(4, plain("team", "bond4"), 0), "it is a team, not a bond"},
		"another VLAN ID": {up(4, vlan("v", 3), 2), up(4, vlan("v", 4), 2), "it is VLAN 4, not VLAN 3"},
		"the VLAN is on another": {up(4, vlan("v", 3), 2), up(4, vlan("v", 3), 5),
			"it is on the device with index 5, not on that with index 2"},
	} {
		if got := mistaken(test.planned, test.now); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
