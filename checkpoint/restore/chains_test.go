package restore

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// recordOf returns the record of an interface of a sandbox on these parents.
func recordOf(id, ifName string, parents ...netstate.Device) checkpoint.Record {
	r := recordOn(parents...)
	r.Attachment = attachment.Key{Network: "lan", ContainerID: id, IfName: ifName}
	r.Interface.Link.Name = ifName
	return r
}

// onSandboxDevice returns the record of an interface that is on another one of its sandbox.
func onSandboxDevice(id, ifName string, parents ...netstate.Device) checkpoint.Record {
	r := recordOf(id, ifName, parents...)
	r.Interface.ParentsInSandbox = true
	return r
}

// nicRecord returns the record of a NIC in a sandbox.
func nicRecord(id, ifName string, index, n int) checkpoint.Record {
	r, own := recordOf(id, ifName), hardware(n)
	r.Interface.Link.Kind, r.Interface.Link.NIC, r.Interface.Link.Index, r.Interface.Parents = netstate.KindNIC, &own, index, nil
	return r
}

func TestChains(t *testing.T) {
	for name, test := range map[string]struct {
		records []checkpoint.Record
		mapped  map[string]string
		want    []string
	}{
		"none": {nil, nil, nil},
		"two NICs": {[]checkpoint.Record{recordOf("a", "eth0", vlan("eth1.3", 3), nic("eth1", 1)), recordOf("b", "eth0", nic("eth2", 2)), recordOf("c", "eth0", nic("eth1", 1))}, nil,
			list("eth1: a/eth0 c/eth0", "eth2: b/eth0")},
		"a bond and what was on its member before": {[]checkpoint.Record{recordOf("a", "eth0", nic("eth1", 1)), recordOf("b", "eth0", bond("bond4", 1, 2)), recordOf("c", "eth0", nic("eth3", 3))}, nil,
			list("bond4: a/eth0 b/eth0", "eth3: c/eth0")},
		"one NIC under two names":      {[]checkpoint.Record{recordOf("a", "eth0", nic("eth1", 1)), recordOf("b", "eth0", nic("ens1", 1))}, nil, list("eth1: a/eth0 b/eth0")},
		"one name, two NICs":           {[]checkpoint.Record{recordOf("a", "eth0", nic("eth1", 1)), recordOf("b", "eth0", nic("eth1", 2))}, nil, list("eth1: a/eth0 b/eth0")},
		"one pod on two NICs":          {[]checkpoint.Record{recordOf("a", "eth0", nic("eth1", 1)), recordOf("a", "net1", nic("eth2", 2))}, nil, list("eth1: a/eth0", "eth2: a/net1")},
		"what is mapped goes together": {[]checkpoint.Record{recordOf("a", "eth0", nic("eth1", 1)), recordOf("b", "eth0", nic("eth2", 2))}, map[string]string{"eth1": "eth2"}, list("eth1: a/eth0 b/eth0")},
		"bonds first":                  {[]checkpoint.Record{recordOf("a", "eth0", nic("eth3", 3)), recordOf("b", "eth0", bond("bond4", 1))}, nil, list("bond4: b/eth0", "eth3: a/eth0")},
		"on an interface of the pod": {[]checkpoint.Record{recordOf("a", "eth0", nic("eth1", 1)), recordOf("a", "net1", nic("eth2", 2)), onSandboxDevice("a", "top0", deviceOfKind("macvlan", "net1"))}, nil,
			list("eth1: a/eth0", "eth2: a/net1 a/top0")},
		"on a device of the pod without a record": {[]checkpoint.Record{recordOf("a", "eth0", nic("eth1", 1)), onSandboxDevice("a", "top0", deviceOfKind("bridge", "br0"))}, nil,
			list("eth1: a/eth0", ": a/top0")},
		"a NIC in a pod, and one that names its port": {[]checkpoint.Record{nicRecord("a", "net1", 7, 5), recordOf("b", "eth0", nic("eth5", 5))}, nil, list("net1: a/net1 b/eth0")},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range Chains(test.records, test.mapped) {
				line := c.Base + ":"
				for _, r := range c.Records {
					line += " " + r.Attachment.ContainerID + "/" + r.Attachment.IfName
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Chains() (-want +got):\n%s", diff)
			}
		})
	}
}

// indexed returns the device as recorded with that index.
func indexed(index int, d netstate.Device) netstate.Device {
	d.IfIndex = index
	if d.Bond != nil {
		for i := range d.Bond.Members {
			d.Bond.Members[i].IfIndex = index - len(d.Bond.Members) + i
		}
	}
	return d
}

func TestLosses(t *testing.T) {
	onVLAN := recordOf("a", "eth0", indexed(12, vlan("eth1.3", 3)), indexed(2, nic("eth1", 1)))
	onBond := recordOf("a", "eth0", indexed(12, vlan("bond4.3", 3)), indexed(6, bond("bond4", 1, 2)))
	there := func(indices ...int) (ds netstate.Devices) {
		of := map[int]netstate.Device{2: nic("eth1", 1), 4: nic("eth1", 1), 5: nic("eth2", 2), 6: bond("bond4"), 12: vlan("x", 3)}
		for _, i := range indices {
			d, known := of[i]
			if !known {
				d = deviceOfKind("veth", "x")
			}
			ds = append(ds, up(i, d, 0))
		}
		return ds
	}
	for name, test := range map[string]struct {
		there   netstate.Devices
		records []checkpoint.Record
		want    []string
	}{
		"all is there":                    {there(2, 12), []checkpoint.Record{onVLAN}, list("")},
		"the VLAN device went":            {there(2), []checkpoint.Record{onVLAN}, list("eth1.3: eth1.3 (index 12) has gone")},
		"all went":                        {there(1), []checkpoint.Record{onVLAN}, list("eth1.3: eth1.3 (index 12) has gone")},
		"a bridge has its index":          {netstate.Devices{up(2, nic("eth1", 1), 0), up(12, deviceOfKind("bridge", "br0"), 0)}, []checkpoint.Record{onVLAN}, list("eth1.3: eth1.3 (index 12) has gone")},
		"another VLAN has its index":      {netstate.Devices{up(2, nic("eth1", 1), 0), up(12, vlan("eth1.3", 4), 2)}, []checkpoint.Record{onVLAN}, list("eth1.3: eth1.3 (index 12) has gone")},
		"another NIC has its index":       {netstate.Devices{up(2, nic("eth1", 9), 0), up(12, vlan("eth1.3", 3), 2)}, []checkpoint.Record{onVLAN}, list("eth1: eth1 (index 2) has gone")},
		"others are in their places":      {there(20, 21), []checkpoint.Record{onVLAN}, list("eth1.3: eth1.3 (index 12) has gone")},
		"a member of the bond went":       {there(5, 6, 12), []checkpoint.Record{onBond}, list("eth1: eth1 (index 4), a member of bond4, has gone")},
		"the bond is whole":               {there(4, 5, 6, 12), []checkpoint.Record{onBond}, list("")},
		"an imported record has no index": {there(1), []checkpoint.Record{recordOf("a", "eth0", nic("eth1", 1))}, list("eth1: eth1 (index 0) has gone")},
		"a NIC of the pod is in the host": {netstate.Devices{up(30, nic("eth5", 5), 0)}, []checkpoint.Record{nicRecord("a", "net1", 7, 5)}, list("net1: eth5 is in the host, as a new device")},
		"a VF of the pod is in the host, with another MAC": {
			netstate.Devices{vfOf("0000:01:00.0", up(30, netstate.Device{Kind: netstate.KindNIC, Name: "eth5", NIC: netstate.NIC{PermanentMAC: "02:00:00:00:00:99", BusAddress: hardware(5).BusAddress}}, 0))},
			[]checkpoint.Record{nicRecord("a", "net1", 7, 5)}, list("net1: eth5 is in the host, as a new device"),
		},
		"what is on a lost interface goes with it": {there(1), []checkpoint.Record{
			onSandboxDevice("a", "top1", indexed(3, deviceOfKind("macvlan", "top0")), indexed(2, deviceOfKind("macvlan", "eth0"))), onSandboxDevice("a", "top0", indexed(2, deviceOfKind("macvlan", "eth0"))), onVLAN, onSandboxDevice("b", "top0", indexed(2, deviceOfKind("macvlan", "eth0"))),
		}, list("eth1.3: eth1.3 (index 12) has gone", "eth1.3: eth1.3 (index 12) has gone", "eth1.3: eth1.3 (index 12) has gone", "")},
		"a NIC of a pod is in it":       {there(1), []checkpoint.Record{nicRecord("a", "net1", 7, 5)}, list("")},
		"its driver came back":          {netstate.Devices{up(30, nic("eth5", 5), 0)}, []checkpoint.Record{nicRecord("a", "net1", 7, 5)}, list("net1: eth5 is in the host, as a new device")},
		"somebody moved it to the host": {netstate.Devices{up(7, nic("eth5", 5), 0)}, []checkpoint.Record{nicRecord("a", "net1", 7, 5)}, list("")},
		"another card is in its place":  {netstate.Devices{up(30, netstate.Device{Kind: "nic", Name: "eth5", NIC: netstate.NIC{PermanentMAC: "x", BusAddress: hardware(5).BusAddress}}, 0)}, []checkpoint.Record{nicRecord("a", "net1", 7, 5)}, list("")},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, l := range Losses(test.there, test.records) {
				if l == nil {
					got = append(got, "")
					continue
				}
				got = append(got, l.Device+": "+l.Reason)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Losses() (-want +got):\n%s", diff)
			}
		})
	}
}

// addWAN gives the sandbox an interface on a parent of its own.
func (p *liveSandbox) addWAN(t *testing.T, ifName string) {
	t.Helper()
	fresh.Run(t, "", "ip link add wan0 up type veth peer name wan1; ip link set wan1 up; ip link add pod0 link wan0 type macvlan; ip link set pod0 netns "+p.netns+" name "+ifName)
	t.Cleanup(func() { fresh.Run(t, "", "ip link del wan0 || true") })
	fresh.Run(t, p.netns, "ip link set "+ifName+" up; ip addr add 10.9.0.2/24 dev "+ifName)
}

func (p *liveSandbox) devices(t *testing.T) netstate.Devices {
	t.Helper()
	host := must(kernel.OpenHost())(t)
	defer host.Close()
	return must(host.Devices())(t)
}

// A base that is missing holds up nobody else, not even in the same sandbox.
func TestAMissingBaseHoldsNobodyUp(t *testing.T) {
	p := newLiveSandbox(t)
	p.addWAN(t, "net1")
	saveCheckpoint(t, p.store, p.netns, attachment.Key{Network: "wan", ContainerID: "c1", IfName: "net1"}, "net1")
	fresh.Run(t, "", "ip link del wan0")
	p.loseParent(t)
	start := time.Now()
	var whole time.Duration
	report := must(Run(t.Context(), Options{Store: p.store, Wait: 3 * time.Second, Waiting: func(reasons []string) {
		if !slices.ContainsFunc(reasons, func(r string) bool { return strings.Contains(r, "wan0") }) {
			t.Errorf("it waits for %q", reasons)
		}
		if whole == 0 && fresh.Run(t, p.netns, "ip -o link show dev eth0 2>/dev/null || true") != "" {
			whole = time.Since(start)
		}
	}}))(t)
	if whole == 0 || whole > 2*time.Second {
		t.Errorf("eth0 was there after %s", whole)
	}
	states := map[string]change.State{}
	for _, o := range report.Outcomes {
		states[o.Attachment.IfName] = o.State
	}
	if diff := cmp.Diff(map[string]change.State{"eth0": Restored, "net1": change.Failed}, states); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

// The indices of the parents are in the record once the interface is whole, and not before.
func TestIndicesOfParentsAreRecordedWhenAllIsWhole(t *testing.T) {
	p := newLiveSandbox(t)
	index := func() int { return must(p.store.Load("c1", "eth0"))(t).Interface.Parents[0].IfIndex }
	lost := func() bool {
		return Losses(p.devices(t), []checkpoint.Record{must(p.store.Load("c1", "eth0"))(t)})[0] != nil
	}
	before := index()
	if before == 0 || lost() {
		t.Fatalf("recorded index %d, lost %v", before, lost())
	}
	p.loseParent(t)
	if !lost() {
		t.Error("the parent has gone, and nothing is lost")
	}
	// A route that the kernel refuses: the interface is there, and not whole.
	r := must(p.store.Load("c1", "eth0"))(t)
	whole := r.Interface.Routes
	r.Interface.Routes = append(slices.Clone(whole), route("10.99.0.0/16", "203.0.113.1"))
	save(t, p.store, r)
	p.expectOutcome(t, p.restore(t, false), change.Failed)
	if index() != before || !lost() {
		t.Errorf("not whole: recorded index %d, was %d; lost %v", index(), before, lost())
	}
	r = must(p.store.Load("c1", "eth0"))(t)
	r.Interface.Routes = whole
	save(t, p.store, r)
	p.expectOutcome(t, p.restore(t, false), AsRecorded)
	if index() == before || lost() {
		t.Errorf("whole: recorded index %d, was %d; lost %v", index(), before, lost())
	}
}

// Routes of an interface can depend on another interface, whose base comes back later.
func TestRoutesThatDependOnAnotherChain(t *testing.T) {
	p := newLiveSandbox(t)
	p.addWAN(t, "net1")
	fresh.Run(t, p.netns, "ip route add 10.77.0.0/16 nexthop via 10.1.0.1 nexthop via 10.9.0.1")
	p.save(t, "eth0", "eth0")
	saveCheckpoint(t, p.store, p.netns, attachment.Key{Network: "wan", ContainerID: "c1", IfName: "net1"}, "net1")
	fresh.Run(t, "", "ip link del wan0")
	p.loseParent(t)
	time.AfterFunc(500*time.Millisecond, func() {
		fresh.Run(t, "", "ip link add wan0 up type veth peer name wan1; ip link set wan1 up")
	})
	report := must(Run(t.Context(), Options{Store: p.store, Wait: 10 * time.Second}))(t)
	for _, o := range report.Outcomes {
		if o.State != Restored {
			t.Errorf("%s: %s: %s", o.Attachment.IfName, o.State, o.FullReason())
		}
	}
	records, _, err := p.store.List()
	if err != nil {
		t.Fatal(err)
	}
	if lost := Losses(p.devices(t), records); slices.ContainsFunc(lost, func(l *Loss) bool { return l != nil }) {
		t.Errorf("lost after the restore: %v", lost)
	}
}

// A NIC that was moved into a sandbox is lost when neither the sandbox nor the host has it.
func TestLossOfAway(t *testing.T) {
	card := func(mac, bus string) *netstate.NIC { return &netstate.NIC{PermanentMAC: mac, BusAddress: bus} }
	link := netstate.Link{Kind: netstate.KindNIC, Name: "net1", Alias: "eth1", NIC: card("52:54:00:00:00:02", "0000:00:03.0")}
	in := func(n *netstate.NIC) netstate.Devices {
		return netstate.Devices{{Device: netstate.Device{Kind: netstate.KindNIC, Name: "eth9", NIC: *n}, Index: 9}}
	}
	other, macvlan := link, link
	other.NIC = nil
	macvlan.Kind = netstate.KindMacvlan
	for name, test := range map[string]struct {
		there netstate.Devices
		link  netstate.Link
		want  string
	}{
		"nobody has it":           {in(card("52:54:00:00:00:01", "0000:00:02.0")), link, "eth1 has gone from its sandbox, and is not in the host"},
		"the host has it":         {in(link.NIC), link, ""},
		"it cannot be told":       {nil, other, ""},
		"it is no NIC of its own": {nil, macvlan, ""},
	} {
		got := ""
		if l := AwayNICLoss(test.there, test.link); l != nil {
			got = l.Reason
			if l.Device != "eth1" || l.Member {
				t.Errorf("%s: %+v", name, l)
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
