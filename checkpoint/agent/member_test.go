package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// newLoop returns what the loop of an agent knows at first. It has no kernel and no store.
func newLoop(devices netstate.Devices) *Agent {
	return &Agent{
		devices: devices, index: &index{sandboxes: map[string]indexedSandbox{}}, members: map[attachment.Key]*member{}, stacks: map[string]*stack{},
		unread: map[*member]bool{}, allSeen: true, concerns: map[*member]bool{}, pods: map[attachment.Pod]*podMembers{}, changedPods: map[attachment.Pod]bool{},
	}
}

// read tells the loop the records of a sandbox, which somebody has read.
func (a *Agent) read(id string, records ...checkpoint.Record) {
	for i := range records {
		records[i].Attachment.ContainerID = id
	}
	before := a.index.sandboxes[id]
	a.index.sandboxes[id] = indexedSandbox{id: id, records: records}
	a.sandboxRead(before, a.index.sandboxes[id])
	clear(a.unread)
	a.regroup()
}

// recordOn returns the record of an interface on these parents.
func recordOn(ifName string, parents ...netstate.Device) (r checkpoint.Record) {
	r.Attachment = attachment.Key{Network: "lan", IfName: ifName}
	r.Interface.Link = netstate.Link{Kind: netstate.KindMacvlan, Name: ifName}
	r.Interface.Parents = parents
	return r
}

// nic returns NIC number n under that name and with that index.
func nic(name string, index, n int) netstate.Device {
	return netstate.Device{
		Kind: netstate.KindNIC, Name: name, MTU: 1500, IfIndex: index,
		NIC: netstate.NIC{PermanentMAC: fmt.Sprintf("02:00:00:00:00:%02x", n), BusAddress: fmt.Sprintf("0000:%02x:00.0", n)},
	}
}

func live(d netstate.Device) netstate.LiveDevice {
	index := d.IfIndex
	d.IfIndex = 0
	return netstate.LiveDevice{Device: d, Index: index, Up: true}
}

// bases are the chains with the numbers of their attachments.
func (a *Agent) bases() (list []string) {
	for _, c := range a.chains {
		n := 0
		for _, s := range c.stacks {
			n += len(s.members)
		}
		list = append(list, fmt.Sprintf("%s: %d", c.name(), n))
	}
	slices.Sort(list)
	return list
}

// The chains follow the records of single sandboxes.
func TestChainsFollowTheRecords(t *testing.T) {
	a := newLoop(nil)
	vlan := netstate.Device{Kind: netstate.KindVLAN, Name: "eth1.3", IfIndex: 12, VLAN: &netstate.VLAN{ID: 3}}
	stacked := recordOn("mv0", netstate.Device{Kind: netstate.KindMacvlan, Name: "net1"})
	stacked.Interface.ParentsInSandbox = true
	alone := recordOn("top0", netstate.Device{Kind: netstate.KindBridge, Name: "br0"})
	alone.Interface.ParentsInSandbox = true
	for _, step := range []struct {
		id      string
		records []checkpoint.Record
		want    []string
	}{
		{"a", []checkpoint.Record{recordOn("eth0", nic("eth1", 2, 1))}, []string{"eth1: 1"}},
		{"b", []checkpoint.Record{recordOn("eth0", vlan, nic("eth1", 2, 1))}, []string{"eth1: 2"}},
		{"c", []checkpoint.Record{recordOn("eth0", nic("eth1", 2, 1)), recordOn("net1", nic("eth2", 3, 2)), stacked}, []string{"eth1: 3", "eth2: 2"}},
		{"d", []checkpoint.Record{alone}, []string{"eth1: 3", "eth2: 2", "in sandbox d: 1"}},
		{"c", []checkpoint.Record{recordOn("net1", nic("eth2", 3, 2)), stacked}, []string{"eth1: 2", "eth2: 2", "in sandbox d: 1"}},
		{"d", nil, []string{"eth1: 2", "eth2: 2"}},
		{"a", nil, []string{"eth1: 1", "eth2: 2"}},
		{"b", nil, []string{"eth2: 2"}},
		{"c", nil, nil},
	} {
		a.read(step.id, step.records...)
		if diff := cmp.Diff(step.want, a.bases()); diff != "" {
			t.Errorf("after %s has %d records (-want +got):\n%s", step.id, len(step.records), diff)
		}
	}
	if len(a.members)+len(a.stacks) > 0 {
		t.Errorf("something is left: %+v", a)
	}
}

// The work for one sandbox does not depend on how many there are.
func TestOneSandboxCostsTheSameAmongMany(t *testing.T) {
	allocated := func(sandboxes int) float64 {
		a := newLoop(netstate.Devices{live(nic("eth1", 2, 1))})
		for i := range sandboxes {
			a.read(fmt.Sprint("c", i), recordOn("eth0", nic("eth1", 2, 1)))
		}
		return testing.AllocsPerRun(100, func() {
			a.read("another")
			a.read("another", recordOn("eth0", nic("eth1", 2, 1)))
			for _, c := range a.chains {
				c.update(a.devices, a.nics, false, time.Now())
			}
			a.countFigures()
		})
	}
	if few, many := allocated(10), allocated(5000); many > few+1 {
		t.Errorf("%.0f allocations among 10 sandboxes, %.0f among 5,000", few, many)
	}
}

// Two NICs are back, and have exchanged their names. While one is restored, its records have the name that the records of the other still
// have. Each loss counts once, and each chain keeps its state.
func TestNICsThatExchangeTheirNames(t *testing.T) {
	a := newLoop(netstate.Devices{live(nic("eth1", 2, 1)), live(nic("eth2", 3, 2))})
	a.read("a", recordOn("eth0", nic("eth1", 2, 1)))
	a.read("b", recordOn("eth0", nic("eth2", 3, 2)))
	var losses []int
	look := func() {
		for _, c := range a.chains {
			before := c.view.lost
			if c.update(a.devices, a.nics, false, time.Now()); before == 0 && c.view.lost > 0 {
				losses = append(losses, c.view.lost)
			}
		}
	}
	look()
	chains := slices.Clone(a.chains)
	a.devices = netstate.Devices{live(nic("eth2", 22, 1)), live(nic("eth1", 33, 2))}
	for _, s := range a.stacks {
		a.judge(s)
	}
	look()
	a.read("a", recordOn("eth0", nic("eth2", 22, 1)))
	look()
	lost := 0
	for _, c := range a.chains {
		lost += c.view.lost
	}
	if len(a.chains) != 2 || lost != 1 {
		t.Errorf("in the middle %d chains, %d lost", len(a.chains), lost)
	}
	a.read("b", recordOn("eth0", nic("eth1", 33, 2)))
	look()
	if diff := cmp.Diff([]int{1, 1}, losses); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	for _, c := range a.chains {
		if !slices.Contains(chains, c) || c.view.lost > 0 {
			t.Errorf("%s has a new state, or is lost: %+v", c.base, c.view)
		}
	}
}

// The agent searches later for a sandbox that it did not find. If the attachment gets a record in another sandbox, the
// agent does not wait with that record.
func TestAbsentUntilRecordedAnew(t *testing.T) {
	first, other := attachment.Namespace{Path: "/run/netns/a", Inode: 1}, attachment.Namespace{Path: "/run/netns/b", Inode: 2}
	record := func(id string, namespace attachment.Namespace) checkpoint.Record {
		r := recordOn("eth0", nic("eth1", 2, 1))
		r.Attachment.ContainerID, r.Namespace = id, namespace
		return r
	}
	gone, anew, found := record("c1", first), record("c2", first), record("c3", first)
	a := newLoop(nil)
	for _, r := range []checkpoint.Record{gone, anew, found} {
		a.read(r.Attachment.ContainerID, r)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a.noteAbsent([]checkpoint.Record{gone, anew, found}, map[attachment.Key]bool{gone.Attachment: true, anew.Attachment: true}, now)
	a.read("c2", record("c2", other))
	if diff := cmp.Diff([]string{"eth1: 2"}, a.bases()); diff != "" || a.countFigures().Absent != 1 {
		t.Errorf("%d absent, and these are looked at (-want +got):\n%s", a.countFigures().Absent, diff)
	}
	if a.expireAbsent(now.Add(absentInterval - 1)); a.countFigures().Absent != 1 {
		t.Error("the agent searches again before it is time")
	}
	if a.expireAbsent(now.Add(absentInterval)); a.countFigures().Absent != 0 || !a.stale {
		t.Error("the agent does not search again when it is time")
	}
	if diff := cmp.Diff([]string{"eth1: 3"}, a.bases()); diff != "" {
		t.Errorf("then these are looked at (-want +got):\n%s", diff)
	}
	lost, told := 0, 0 // That is no new loss.
	a.Observers = []func(Event){func(e Event) {
		switch e := e.(type) {
		case Changes:
			told = len(e)
		case Connectivity:
			lost = e.Lost["eth1"]
		}
	}}
	a.reportChanges(false, now)
	if a.tellConnectivity(); lost != 2 || told != 2 {
		t.Errorf("of three, with one that was not found, %d are lost, and %d losses are told", lost, told)
	}
	a.noteAbsent([]checkpoint.Record{gone}, nil, now)
	if a.tellConnectivity(); lost != 3 {
		t.Errorf("%d are lost after the search has found the third", lost)
	}
	a.noteAbsent([]checkpoint.Record{gone}, map[attachment.Key]bool{gone.Attachment: true}, now)
	a.read("c2")
	a.read("c3")
	a.devices = netstate.Devices{live(nic("eth1", 2, 1))}
	if a.expireAbsent(now.Add(absentInterval)); a.members[gone.Attachment].absent {
		t.Error("no restore searches for what is on devices that are whole")
	}
}

// The runtime has told the agent the UID, and not the plugin.
func TestThePodOfARecordWithoutItsUID(t *testing.T) {
	of := func(name, uid string) (r checkpoint.Record) {
		r.Pod = attachment.Pod{Namespace: "shop", Name: name, UID: uid}
		return r
	}
	records := []checkpoint.Record{of("web", ""), of("web", "u1"), of("db", ""), {}}
	shareUID(records)
	for i, want := range []string{"u1", "u1", "", ""} {
		if uid := records[i].Pod.UID; uid != want {
			t.Errorf("record %d has the UID %q, not %q", i, uid, want)
		}
	}
}
