package restore

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
)

func carries(addresses []string, routes ...netstate.Route) netstate.Carried {
	own := netstate.Carried{Routes: routes}
	for _, a := range addresses {
		own.Addresses = append(own.Addresses, netstate.Address{Prefix: netip.MustParsePrefix(a)})
	}
	return own
}

func TestPlanOfWhatTheHostCarried(t *testing.T) {
	recorded := carries(list("10.3.0.250/24", "10.3.1.250/24"), route("10.7.0.0/16", "10.3.0.1"), route("10.8.0.0/16", ""), route("10.9.0.0/16", "10.3.1.1"))
	const expired = 1 // The second address is that of a DHCP client. Its time is over.
	recorded.Addresses[expired].ValidUntil = 600
	for name, test := range map[string]struct {
		live  netstate.Carried
		steps []string
		note  string
	}{
		"all of it is there": {live: recorded},
		"nothing is there": {steps: list(
			"add address 10.3.0.250/24 to bond4.3: address 10.3.0.250/24 is missing",
			"add route 10.8.0.0/16 to bond4.3: route 10.8.0.0/16 is missing",
			"add route 10.7.0.0/16 via 10.3.0.1 to bond4.3: route 10.7.0.0/16 via 10.3.0.1 is missing")},
		"a restore was killed in between": {
			live: carries(list("10.3.0.250/24")),
			steps: list("add route 10.8.0.0/16 to bond4.3: route 10.8.0.0/16 is missing",
				"add route 10.7.0.0/16 via 10.3.0.1 to bond4.3: route 10.7.0.0/16 via 10.3.0.1 is missing"),
		},
		"the network manager gave it another address": {
			live: carries(list("10.3.0.251/24")),
			note: "bond4.3 in the host has the address 10.3.0.251/24 now, which was not recorded: its addresses are left alone",
		},
		"the network manager gave it another route": {
			live: carries(list("10.3.0.250/24"), route("10.7.0.0/16", "10.3.0.9"), route("10.8.0.0/16", "")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps, note := planCarried(up(3, vlan("bond4.3", 3), 2), recorded, test.live, 700*time.Second)
			if diff := cmp.Diff(test.steps, withReasons(steps)); diff != "" || note != test.note {
				t.Errorf("note %q, steps (-want +got):\n%s", note, diff)
			}
		})
	}
}

// The newest record of a device counts. An address that somebody has removed does not come back just because an older
// record has it.
func TestTheNewestRecordSaysWhatTheHostCarried(t *testing.T) {
	older, newer := carries(list("10.3.0.250/24")), carries(list("10.3.0.251/24"))
	at := func(minute int, own *netstate.Carried) checkpoint.Record {
		parent := vlan("eth1.3", 3)
		parent.Carried = own
		i := pod()
		i.Parents = stack{parent, nic("eth1", 1)}
		return checkpoint.Record{Interface: i, CapturedAt: time.Date(2026, 1, 1, 1, minute, 0, 0, time.UTC)}
	}
	plan := NewParentPlan(devices{up(2, nic("eth1", 1), 0), up(3, vlan("eth1.3", 3), 2)}, nil, ParentOptions{})
	for name, test := range map[string]struct {
		records []checkpoint.Record
		want    string
	}{
		"in order":              {[]checkpoint.Record{at(1, &older), at(2, &newer)}, "10.3.0.251/24"},
		"the other way round":   {[]checkpoint.Record{at(2, &newer), at(1, &older)}, "10.3.0.251/24"},
		"taken away since then": {[]checkpoint.Record{at(1, &older), at(2, nil)}, ""},
	} {
		got := ""
		for _, o := range newestCarried(test.records, plan) {
			got = o.carried.Addresses[0].String()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestPlanRebuildsABondOnDemand(t *testing.T) {
	recorded := mtu(bond("bond4", 1, 2), 4000)
	recorded.MAC = "02:00:00:00:00:04"
	planTests{
		"its members are free": {
			rebuild: true, there: devices{down(2, nic("eth1", 1), 0), down(3, nic("eth2", 2), 0)},
			chains: oneChain(mtu(vlan("bond4.3", 3), 4000), recorded),
			want: planResult{On: list("bond4.3"), Steps: list(
				"create bond4, a bond of mode active-backup: it is missing, and --rebuild-bond was given",
				"enslave eth1 to bond4: it was a member of bond4 when recorded and is free",
				"enslave eth2 to bond4: it was a member of bond4 when recorded and is free",
				"set bond4 up: it is down",
				"create bond4.3, VLAN 3 on bond4: it is missing")},
		},
		"one member is not there": {
			rebuild: true, there: devices{down(2, nic("eth1", 1), 0)}, chains: oneChain(recorded),
			want: planResult{On: list("bond4"), Steps: list(
				"create bond4, a bond of mode active-backup: it is missing, and --rebuild-bond was given",
				"enslave eth1 to bond4: it was a member of bond4 when recorded and is free",
				"set bond4 up: it is down"),
				Problems: list("bond4 lacks its member: eth2 (permanent MAC 52:54:00:00:00:02, bus address 0000:00:02.0) is not there ?")},
		},
		"no member is free": {
			rebuild: true, there: devices{enslaved(2, nic("eth1", 1), 9), up(9, deviceOfKind("team", "team0"), 0)}, chains: oneChain(recorded),
			want: planResult{On: list(""), Broken: list("bond4 can't be built: none of its members is there and free ?")},
		},
		"it is there": {
			rebuild: true, there: devices{up(4, recorded, 0), enslaved(2, nic("eth1", 1), 4), enslaved(3, nic("eth2", 2), 4)},
			chains: oneChain(recorded), want: planResult{On: list("bond4")},
		},
		"the operator named another device for it": {
			rebuild: true, mapped: map[string]string{"bond4": "eth9"}, there: devices{down(2, nic("eth1", 1), 0)}, chains: oneChain(recorded),
			want: planResult{On: list(""), Broken: list("eth9, told by --parent for bond4, is not there ?")},
		},
		"another device has its name": {
			rebuild: true, there: devices{up(4, deviceOfKind("bridge", "bond4"), 0)}, chains: oneChain(recorded),
			want: planResult{On: list(""), Broken: list("bond4 is a bridge now, recorded as a bond: left alone")},
		},
	}.run(t)
}

func TestPlanOfANIC(t *testing.T) {
	link := netstate.Link{Kind: netstate.KindNIC, Name: "net1", Alias: "eth5", NIC: &netstate.NIC{PermanentMAC: hardware(5).PermanentMAC}}
	p := NewParentPlan(devices{up(2, nic("eth1", 1), 0), down(3, nic("enp5", 5), 0)}, nil, ParentOptions{})
	there, note, problem := p.findHostNIC(link)
	if problem != nil || there.Name != "enp5" || note != "eth5 is now enp5 (same permanent MAC 52:54:00:00:00:05)" {
		t.Errorf("%s, %q, %v", there.Name, note, problem)
	}
	gone := NewParentPlan(devices{up(2, nic("eth1", 1), 0)}, nil, ParentOptions{})
	if _, _, problem := gone.findHostNIC(link); problem == nil || !problem.Transient {
		t.Errorf("problem %v", problem)
	}
	recorded := netstate.Interface{Link: link}
	steps, err := planInterface(recorded, nil, "enp5", nil)
	if err != nil || len(steps) != 1 || steps[0].String() != "move enp5 of the host to the sandbox as net1" {
		t.Errorf("%v, %v", steps, err)
	}
}

func TestWhatARebuiltParentLacksIsNamed(t *testing.T) {
	on := func(name string, inSandbox bool, had ...string) checkpoint.Record {
		d := vlan(name, 3)
		d.Carried = &netstate.Carried{NotRestored: had}
		return checkpoint.Record{Interface: netstate.Interface{ParentsInSandbox: inSandbox, Parents: stack{d, nic("eth1", 1)}}}
	}
	const begin = "eth1.3 in the host is made anew, without what it had when recorded and no restore brings back: "
	for name, test := range map[string]struct {
		records []checkpoint.Record
		want    string
	}{
		"nothing":          {[]checkpoint.Record{on("eth1.3", false)}, ""},
		"another's":        {[]checkpoint.Record{on("eth1.4", false, "alias \"x\"")}, ""},
		"one in a sandbox": {[]checkpoint.Record{on("eth1.3", true, "alias \"x\"")}, ""},
		"of many records, each thing once": {[]checkpoint.Record{
			on("eth1.3", false, "alias \"x\""), on("eth1.3", false, "alias \"x\"", "qdisc tbf 1:"), on("eth1.3", false),
		}, begin + `alias "x", qdisc tbf 1:`},
	} {
		if diff := cmp.Diff(test.want, notRestoredNote("eth1.3", test.records)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
