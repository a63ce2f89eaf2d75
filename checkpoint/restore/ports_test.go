package restore

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/netstate"
)

// port returns NIC number n as a port of one card. All NICs are on this card. number "" means an unknown port.
func port(name string, n int, number string) netstate.Device {
	d := nic(name, n)
	d.BusAddress, d.DevPort = "0000:3b:00.0", number
	return d
}

// bondOf returns a bond with the devices as members.
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
	const isEth1 = "the recorded eth0 (permanent MAC 52:54:00:00:00:01, bus address 0000:3b:00.0) is not there; " +
		"what is eth1 now is the recorded eth1 (permanent MAC 52:54:00:00:00:02, bus address 0000:3b:00.0): to use it for eth0 as well, say --parent eth0=eth1 ?"
	const either = "the recorded %s (permanent MAC 52:54:00:00:00:0%d, bus address 0000:3b:00.0) could be what is now eth1 (permanent MAC 52:54:00:00:00:09, bus address 0000:3b:00.0), " +
		"and so could the recorded %s (permanent MAC 52:54:00:00:00:0%d, bus address 0000:3b:00.0): say which by --parent %[1]s=DEVICE ?"
	bond4 := up(4, bond("bond4"), 0)
	both := bondOf(port("eth0", 1, "0"), port("eth1", 2, "1"))
	portless := bondOf(port("eth0", 1, ""), port("eth1", 2, ""))
	enslave := func(name, was string) string {
		if name == was {
			return fmt.Sprintf("enslave %s to bond4: it was a member of bond4 when recorded and is free", name)
		}
		return fmt.Sprintf("enslave %s to bond4: it was a member of bond4 as %s when recorded and is free", name, was)
	}
	planTests{
		"only the second is there": {
			there: devices{bond4, down(3, port("eth1", 2, "1"), 0)}, chains: oneChain(both),
			want: planResult{On: list("bond4"), Steps: list(enslave("eth1", "eth1")),
				Problems: list("bond4 lacks its member: eth0 (permanent MAC 52:54:00:00:00:01, bus address 0000:3b:00.0) is not there ?")},
		},
		"only the second is there, of a record without ports": {
			there: devices{bond4, down(3, port("eth1", 2, "1"), 0)}, chains: oneChain(portless),
			want: planResult{On: list("bond4"), Steps: list(enslave("eth1", "eth1")),
				Problems: list("bond4 lacks its member: eth0 (permanent MAC 52:54:00:00:00:01, bus address 0000:3b:00.0) is not there ?")},
		},
		"only the second is there, which another record names": {
			there: devices{up(3, port("eth1", 2, "0"), 0)}, chains: []stack{{port("eth0", 1, "0")}, {port("eth1", 2, "0")}},
			want: planResult{On: list("", "eth1"), Broken: list(isEth1)},
		},
		"the card was exchanged": {
			there: devices{bond4, down(2, port("eth0", 8, "1"), 0), down(3, port("eth1", 9, "0"), 0)}, chains: oneChain(both),
			want: planResult{On: list("bond4"), Steps: list(enslave("eth1", "eth0"), enslave("eth0", "eth1")), Notes: list(
				"eth1 is another card in the place of eth0 (bus address 0000:3b:00.0; permanent MAC 52:54:00:00:00:09, recorded 52:54:00:00:00:01)",
				"eth0 is another card in the place of eth1 (bus address 0000:3b:00.0; permanent MAC 52:54:00:00:00:08, recorded 52:54:00:00:00:02)")},
		},
		"the card was exchanged, and the record has no ports": {
			there: devices{bond4, down(2, port("eth0", 8, "1"), 0), down(3, port("eth1", 9, "0"), 0)}, chains: oneChain(portless),
			want: planResult{On: list("bond4"), Problems: list(
				"bond4 lacks its member: eth0 is another NIC now "+
					"(permanent MAC 52:54:00:00:00:08, bus address 0000:3b:00.0, port 1; recorded permanent MAC 52:54:00:00:00:01, bus address 0000:3b:00.0): use it by --parent eth0=eth0 ?",
				"bond4 lacks its member: eth1 is another NIC now "+
					"(permanent MAC 52:54:00:00:00:09, bus address 0000:3b:00.0; recorded permanent MAC 52:54:00:00:00:02, bus address 0000:3b:00.0): use it by --parent eth1=eth1 ?")},
		},
		"the card was exchanged, and one of the new ports is there": {
			there: devices{up(3, port("eth1", 9, "0"), 0)}, chains: []stack{{port("eth0", 1, "0")}, {port("eth1", 2, "0")}},
			want: planResult{On: list("", ""), Broken: list(
				fmt.Sprintf(either, "eth0", 1, "eth1", 2), fmt.Sprintf(either, "eth1", 2, "eth0", 1))},
		},
		"the other port alone is no match": {
			there: devices{up(3, port("eth5", 9, "1"), 0)}, chains: oneChain(port("eth0", 1, "0")),
			want: planResult{On: list(""), Broken: list("eth0 (permanent MAC 52:54:00:00:00:01, bus address 0000:3b:00.0) is not there ?")},
		},
		"a driver that tells no MACs": {
			there:  devices{up(2, noMAC(port("eth5", 0, "1")), 0), up(3, noMAC(port("eth6", 0, "0")), 0)},
			chains: []stack{{noMAC(port("eth0", 0, "0"))}, {noMAC(port("eth1", 0, "1"))}},
			want: planResult{On: list("eth6", "eth5"), Notes: list(
				"eth0 is now eth6 (same bus address 0000:3b:00.0)", "eth1 is now eth5 (same bus address 0000:3b:00.0)")},
		},
		"the operator makes one NIC of two members": {
			there: devices{bond4, enslaved(3, port("eth1", 2, "1"), 4)}, chains: oneChain(bondOf(port("eth1", 2, "1"), port("eth0", 1, "0"))),
			mapped: map[string]string{"eth0": "eth1"},
			want:   planResult{On: list("bond4"), Problems: list("bond4 lacks its member: eth0 would be eth1, which is its member eth1 already")},
		},
		"a NIC that told nothing does not take the name's new owner": {
			there: devices{up(3, port("eth0", 2, "1"), 0)}, chains: []stack{{deviceOfKind(netstate.KindNIC, "eth0")}, {port("eth1", 2, "1")}},
			want: planResult{On: list("", "eth0"), Notes: list("eth1 is now eth0 (same permanent MAC 52:54:00:00:00:02)"), Broken: list(
				"the recorded eth0 (no permanent MAC, no bus address) is not there; " +
					"what is eth0 now is the recorded eth1 (permanent MAC 52:54:00:00:00:02, bus address 0000:3b:00.0, port 1): to use it for eth0 as well, say --parent eth0=eth0 ?")},
		},
	}.run(t)
}

// shared is the number of a MAC that several NICs have.
const shared = 99

// drawMAC gives the NIC the MAC of one of the numbers. 0 means no MAC.
func drawMAC(t *rapid.T, d netstate.Device, numbers ...int) netstate.Device {
	n := rapid.SampledFrom(numbers).Draw(t, "MAC")
	d.PermanentMAC = hardware(n).PermanentMAC
	if n == 0 {
		return noMAC(d)
	}
	return d
}

// drawRecorded returns the records of NIC number n: of its present card and of an earlier card. Each record has the
// name of its time, and some do not know everything. Only NICs in different slots have the shared MAC.
func drawRecorded(t *rapid.T, n int, sharing map[string]bool) []netstate.Device {
	slot := rapid.SampledFrom([]string{slotA, slotB}).Draw(t, "slot")
	port := rapid.SampledFrom([]string{"0", "0", "1"}).Draw(t, "port")
	macs := []int{n}
	switch rapid.IntRange(0, 3).Draw(t, "its MAC") {
	case 0:
		macs = []int{0}
	case 1:
		if !sharing[slot] {
			macs, sharing[slot] = []int{shared}, true
		}
	case 2:
		macs = []int{n, 20 + n}
	}
	var all []netstate.Device
	for range rapid.IntRange(1, 3).Draw(t, "records") {
		d := drawMAC(t, nic(fmt.Sprintf("eth%d", n), n), macs...)
		d.Name = rapid.SampledFrom([]string{d.Name, d.Name, fmt.Sprintf("enp%d", n)}).Draw(t, "name")
		all = append(all, atSlot(slot, rapid.SampledFrom([]string{port, port, ""}).Draw(t, "known port"), d))
	}
	return all
}

// drawHostDevices returns the NICs that came back. They are in any slot, under any name, and some have a recorded MAC.
func drawHostDevices(t *rapid.T) devices {
	there := devices{up(20, bond("bond4"), 0)}
	names := rapid.Permutation([]string{"eth1", "eth2", "eth3", "eth4", "enp1", "enp2"}).Draw(t, "names")
	for i := range rapid.IntRange(0, 5).Draw(t, "NICs") {
		n := i + 1
		d := drawMAC(t, nic(names[i], n), 0, n, 20+n, 40+n, shared)
		d = atSlot(rapid.SampledFrom([]string{slotA, slotB, "0000:00:05.0"}).Draw(t, "slot"), rapid.SampledFrom([]string{"", "0", "1"}).Draw(t, "port"), d)
		there = append(there, netstate.LiveDevice{Device: d, Index: n, MasterIndex: rapid.SampledFrom([]int{0, 20}).Draw(t, "master")})
	}
	return there
}

// portFits fails if the MAC of the found NIC is not the recorded one, and its port differs from one that a record of
// this NIC has.
func portFits(t *rapid.T, was netstate.Member, is netstate.LiveDevice, number map[netstate.Member]int) {
	for other, n := range number {
		alike := other.Name == was.Name || other.PermanentMAC != "" && other.PermanentMAC == was.PermanentMAC
		if n == number[was] && alike && other.DevPort != "" && is.DevPort != "" && other.DevPort != is.DevPort &&
			(was.PermanentMAC == "" || was.PermanentMAC != is.PermanentMAC) {
			t.Fatalf("%+v became %+v, though %+v knows its port", was, is, other)
		}
	}
}

// This holds whatever comes back, and whatever the records know. No NIC becomes two recorded NICs. No NIC is found at
// another port than recorded. A NIC is always found if it alone has the recorded MAC.
func TestNoNICBecomesTwoOfTheRecorded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		there, sharing := drawHostDevices(t), map[string]bool{}
		var chains []stack
		var members []netstate.Device
		number := map[netstate.Member]int{}
		for n := 1; n <= 4; n++ {
			for i, d := range drawRecorded(t, n, sharing) {
				number[netstate.Member{Name: d.Name, NIC: d.NIC}] = n
				if i == 0 && rapid.Bool().Draw(t, "member") {
					members = append(members, d)
					continue
				}
				chains = append(chains, stack{d})
			}
		}
		chains = append(chains, stack{bondOf(members...)})
		p := NewParentPlan(there, recordedMembers(chains...), ParentOptions{})
		became := map[int]netstate.Member{}
		for _, m := range recordedMembers(chains...) {
			index, _, problem := p.find(memberDevice(m))
			if problem == nil {
				other, twice := became[index]
				if twice && number[other] != number[m] {
					t.Fatalf("%+v became %+v and %+v", p.devices[index], other, m)
				}
				became[index] = m
				portFits(t, m, p.devices[index], number)
			}
			for i, d := range there {
				unique := m.PermanentMAC != "" && m.PermanentMAC != hardware(shared).PermanentMAC
				if unique && d.PermanentMAC == m.PermanentMAC && (problem != nil || index != i) {
					t.Fatalf("%+v is there as %s, and was not found: %v", m, d.Name, problem)
				}
			}
		}
		now := p.chain(chains[len(chains)-1]).Found[0].Bond.Members
		for i, m := range now {
			if slices.Contains(now[:i], m) {
				t.Fatalf("the bond has %+v twice", m)
			}
		}
	})
}

// A killed restore has already written some of its findings into the records. The next restore still finds the other
// NICs, if they have their names and slots, and each has its own MAC or none.
func TestWhatAKilledRestoreRewroteDoesNotHideTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		there, none := drawHostDevices(t), map[string]bool{slotA: true, slotB: true}
		for i, d := range there {
			there[i].DevPort = cmp.Or(d.DevPort, "0") // Linux reports a port for every NIC.
			if d.PermanentMAC == hardware(shared).PermanentMAC {
				there[i].PermanentMAC = hardware(60 + i).PermanentMAC
			}
		}
		var recorded []netstate.Member
		for n := 1; n <= 4; n++ {
			for _, d := range drawRecorded(t, n, none) {
				recorded = append(recorded, netstate.Member{Name: fmt.Sprintf("eth%d", n), NIC: d.NIC})
			}
		}
		first := NewParentPlan(there, recorded, ParentOptions{})
		left := slices.Clone(recorded)
		for i, m := range recorded {
			index, _, problem := first.find(memberDevice(m))
			if problem == nil && there[index].Name == m.Name && there[index].BusAddress == m.BusAddress && rapid.Bool().Draw(t, "rewritten") {
				left[i] = netstate.Member{Name: m.Name, NIC: there[index].NIC}
			}
		}
		again := NewParentPlan(there, left, ParentOptions{})
		for i, m := range recorded {
			index, _, problem := first.find(memberDevice(m))
			if problem != nil || there[index].Name != m.Name {
				continue
			}
			if now, _, problem := again.find(memberDevice(left[i])); problem != nil || now != index {
				t.Fatalf("%+v became %+v, and then as %+v was not found: %v", m, there[index], left[i], problem)
			}
		}
	})
}

func TestADeviceIsMistakenForAnother(t *testing.T) {
	eth := up(2, nic("eth1", 1), 0)
	renamed := eth
	renamed.Name = "lan0"
	untold := up(2, deviceOfKind(netstate.KindNIC, "eth1"), 0)
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
			"it is another NIC (no permanent MAC, bus address 0000:3b:00.0, port 1), not that one (no permanent MAC, bus address 0000:3b:00.0)"},
		"another kind":    {up(4, bond("bond4"), 0), up(4, deviceOfKind("team", "bond4"), 0), "it is a team, not a bond"},
		"another VLAN ID": {up(4, vlan("v", 3), 2), up(4, vlan("v", 4), 2), "it is VLAN 4, not VLAN 3"},
		"the VLAN is on another": {up(4, vlan("v", 3), 2), up(4, vlan("v", 3), 5),
			"it is on the device with index 5, not on that with index 2"},
	} {
		if got := mismatch(test.planned, test.now); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
