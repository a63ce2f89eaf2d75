package agent

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

func TestPodState(t *testing.T) {
	loss := func(ifName, device string) InterfaceChange {
		return InterfaceChange{Attachment: attachment.Key{Network: "lan", ContainerID: "c", IfName: ifName}, State: Lost, Device: device}
	}
	eth0, net1 := loss("eth0", "bond4.3"), loss("net1", "eth7")
	later := loss("eth0", "bond4")
	whole := attachmentView{found: true, readable: true}
	lost := func(c InterfaceChange) attachmentView { return attachmentView{found: true, readable: true, loss: &c} }
	owed, torn, absent := attachmentView{found: true, readable: true, owed: true}, attachmentView{found: true}, attachmentView{readable: true}
	for name, test := range map[string]struct {
		told        InterfaceChange
		attachments []attachmentView
		state       PodState
		loss        InterfaceChange
		reason      string
	}{
		"no attachment":                     {state: PodUnknown, reason: "no sandbox of the pod is found"},
		"only sandboxes that are not found": {attachments: []attachmentView{absent, absent}, state: PodUnknown, reason: "no sandbox of the pod is found"},
		"whole":                             {attachments: []attachmentView{whole, whole}, state: PodConnected, reason: "all recorded interfaces are whole"},
		"whole beside an old sandbox":       {attachments: []attachmentView{absent, whole}, state: PodConnected, reason: "all recorded interfaces are whole"},
		"one of two lost":                   {attachments: []attachmentView{whole, lost(net1)}, state: PodCutOff, loss: net1, reason: "eth7 has gone"},
		"two lost, in any order":            {attachments: []attachmentView{lost(net1), lost(eth0)}, state: PodCutOff, loss: eth0, reason: "bond4.3 has gone"},
		"one more lost":                     {told: net1, attachments: []attachmentView{lost(eth0), lost(net1)}, state: PodCutOff, loss: net1, reason: "eth7 has gone"},
		"the told one is back":              {told: net1, attachments: []attachmentView{lost(eth0), whole}, state: PodCutOff, loss: eth0, reason: "bond4.3 has gone"},
		"more devices go":                   {told: eth0, attachments: []attachmentView{lost(later)}, state: PodCutOff, loss: eth0, reason: "bond4.3 has gone"},
		"lost, and a torn checkpoint":       {attachments: []attachmentView{torn, lost(eth0)}, state: PodCutOff, loss: eth0, reason: "bond4.3 has gone"},
		"a torn checkpoint":                 {told: eth0, attachments: []attachmentView{whole, torn}, state: PodUnknown, reason: "a checkpoint cannot be read"},
		"restored without carrier":          {told: eth0, attachments: []attachmentView{whole, owed}, state: PodUnannounced, reason: "the neighbours are not told yet"},
		"owed, and a torn checkpoint":       {attachments: []attachmentView{owed, torn}, state: PodUnknown, reason: "a checkpoint cannot be read"},
		"lost, and owed by another":         {attachments: []attachmentView{owed, lost(eth0)}, state: PodCutOff, loss: eth0, reason: "bond4.3 has gone"},
	} {
		if state, loss, reason := podState(test.told, test.attachments); state != test.state || loss != test.loss || reason != test.reason {
			t.Errorf("%s: %q, %+v, %q", name, state, loss, reason)
		}
	}
}

func TestCutsOff(t *testing.T) {
	bond := netstate.Device{Kind: netstate.KindBond, Name: "bond4", IfIndex: 7, Bond: &netstate.Bond{}}
	member := func(master int) netstate.LiveDevice { return netstate.LiveDevice{Index: 3, MasterIndex: master} }
	for name, test := range map[string]struct {
		loss    *restore.Loss
		devices netstate.Devices
		want    bool
	}{
		"no loss":                       {nil, netstate.Devices{}, false},
		"a device has gone":             {&restore.Loss{Device: "bond4"}, netstate.Devices{member(7)}, true},
		"one NIC of the bond":           {&restore.Loss{Device: "eth0", Member: true}, netstate.Devices{member(7)}, false},
		"the last NIC of the bond":      {&restore.Loss{Device: "eth0", Member: true}, netstate.Devices{member(0)}, true},
		"another bond's NIC is present": {&restore.Loss{Device: "eth0", Member: true}, netstate.Devices{member(8)}, true},
	} {
		if got := cutsOff(test.loss, []netstate.Device{{Name: "bond4.3", IfIndex: 8}, bond}, test.devices); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// All NICs of a bond go and come. A pod is not connected while the bond has a NIC again and nobody was told: it may have no link.
func TestABondThatHasANICAgainIsNotAnnounced(t *testing.T) {
	pod := attachment.Pod{Namespace: "shop", Name: "web", UID: "1"}
	lan0 := nic("lan0", 5, 1)
	bond := netstate.Device{Kind: netstate.KindBond, Name: "bond4", MTU: 1500, IfIndex: 7}
	record := func(member netstate.Device, owed bool) checkpoint.Record {
		d := bond
		d.Bond = &netstate.Bond{Mode: "active-backup", Members: []netstate.Member{{Name: member.Name, IfIndex: member.IfIndex, NIC: member.NIC}}}
		r := recordOn("eth0", d)
		r.Pod, r.AnnouncementOwed = pod, owed
		return r
	}
	sees := func(a *Agent, members ...netstate.Device) {
		a.devices = netstate.Devices{{Device: netstate.Device{Kind: netstate.KindBond, Name: "bond4", MTU: 1500, Bond: &netstate.Bond{Mode: "active-backup"}}, Index: 7, Up: true}}
		for _, m := range members {
			d := live(m)
			d.MasterIndex = 7
			a.devices = append(a.devices, d)
		}
		a.judge(slices.Collect(maps.Values(a.stacks))...)
	}
	a := newLoop(nil)
	sees(a, lan0)
	a.read("c1", record(lan0, false))
	tells := func(what string, want PodState) {
		t.Helper()
		a.regroup()
		for _, c := range a.chains {
			c.update(a.devices, a.nics, false, time.Now())
		}
		a.tellConnectivity()
		if got := a.pods[pod].reported.State; got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	tells("whole", PodConnected)
	sees(a)
	tells("the NIC goes", PodCutOff)
	again := nic("lan0", 15, 1)
	sees(a, again)
	tells("the NIC is in the bond again", PodUnannounced)
	a.read("c1", record(again, true))
	tells("restored", PodUnannounced)
	a.read("c1", record(again, false))
	tells("announced", PodConnected)
}

// The loop tells each change once, and what the whole node has lost. It tells nothing about pods of which nothing has changed.
func TestConnectivityIsTold(t *testing.T) {
	lan0, lan1 := nic("lan0", 5, 1), nic("lan1", 6, 2)
	a := newLoop(netstate.Devices{live(lan0), live(lan1)})
	var heard []Connectivity
	a.Observers = []func(Event){func(e Event) { heard = append(heard, e.(Connectivity)) }}
	web, db := attachment.Pod{Namespace: "shop", Name: "web", UID: "1"}, attachment.Pod{Namespace: "shop", Name: "db", UID: "2"}
	of := func(pod attachment.Pod, parent netstate.Device, ifName string) (r checkpoint.Record) {
		r = recordOn(ifName, parent)
		r.Pod = pod
		return r
	}
	tells := func(what string, lost map[string]int, want ...string) {
		t.Helper()
		heard = nil
		a.regroup()
		a.tellConnectivity()
		var got []string
		total := map[string]int{}
		for _, e := range heard {
			total = e.Lost
			for _, p := range e.Pods {
				got = append(got, p.Pod.Name+" "+string(p.State)+" "+p.Loss.Device)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) || !maps.Equal(total, lost) {
			t.Errorf("%s: %s %v", what, cmp.Diff(want, got), total)
		}
	}
	sees := func(devices ...netstate.LiveDevice) {
		a.devices = devices
		a.judge(slices.Collect(maps.Values(a.stacks))...)
	}
	tells("an empty node", nil)
	if len(heard) != 1 {
		t.Errorf("heard %+v of an empty node", heard)
	}
	a.read("c1", of(web, lan0, "eth0"), of(web, lan1, "net1"))
	a.read("c2", of(db, lan0, "eth0"))
	a.read("c3", of(attachment.Pod{}, lan0, "eth0"))
	tells("whole", nil, "db connected ", "web connected ")
	sees(live(lan0), live(lan1))
	if tells("nothing new", nil); len(heard) != 0 {
		t.Errorf("heard %+v", heard)
	}
	sees(live(lan1))
	tells("a NIC goes", map[string]int{"lan0": 3}, "db cut off lan0", "web cut off lan0")
	sees()
	tells("the second NIC goes", map[string]int{"lan0": 3, "lan1": 1})
	restored := nic("lan0", 15, 1)
	sees(live(restored))
	a.read("c1", of(web, restored, "eth0"), of(web, lan1, "net1"))
	owed := of(db, restored, "eth0")
	owed.AnnouncementOwed = true
	a.read("c2", owed)
	tells("one is restored", map[string]int{"lan0": 1, "lan1": 1}, "db unannounced ", "web cut off lan1")
	a.read("c2", of(db, restored, "eth0"))
	tells("the neighbours are told", map[string]int{"lan0": 1, "lan1": 1}, "db connected ")
	a.read("c1")
	a.read("c2")
	tells("both pods end", map[string]int{"lan0": 1}, "db  ", "web  ")
	a.read("c3")
	tells("the pod that nobody knows ends", nil)
	if len(heard) != 1 {
		t.Errorf("heard %+v when an unknown pod has ended", heard)
	}
	if len(a.pods) > 0 {
		t.Errorf("pods that are gone are kept: %v", a.pods)
	}
}

// Nobody hears that a pod is connected before this agent has looked at it: its interface can have been taken away while no agent ran.
func TestAnAgentThatStartsCallsNoPodConnectedUnseen(t *testing.T) {
	n := newNode(t, "lan0")
	whole, taken := n.attach(t, "lan0", 1), n.attach(t, "lan0", 2)
	fresh.IP(t, taken.netns, "link del eth0")
	var mu sync.Mutex
	told := map[string][]PodState{}
	n.start(t, func(opts *Options) {
		opts.Observers = []func(Event){func(event Event) {
			if e, ok := event.(Connectivity); ok {
				mu.Lock()
				defer mu.Unlock()
				for _, p := range e.Pods {
					told[p.Pod.Name] = append(told[p.Pod.Name], p.State)
				}
			}
		}}
	})
	has := func(p pod, state PodState) bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(told[p.key.ContainerID], state)
	}
	within(t, patience, "the pod with its interface is connected", func() bool { return has(whole, PodConnected) })
	n.awaitConfirmed(t, taken)
	if has(taken, PodConnected) || !has(taken, PodUnannounced) {
		t.Errorf("the pod without its interface: %q", told[taken.key.ContainerID])
	}
}

// What the observers hear first of a node is all of it: an agent that starts during a loss does not say before that all is well.
func TestTheFirstThatIsToldIsTheWholeNode(t *testing.T) {
	n := newNode(t, "lan0")
	n.attach(t, "lan0", 1)
	n.attach(t, "lan0", 2)
	fresh.IP(t, "", "link del lan0")
	first := make(chan Connectivity, 100)
	n.start(t, func(opts *Options) {
		opts.Observers = []func(Event){func(event Event) {
			if e, ok := event.(Connectivity); ok {
				first <- e
			}
		}}
	})
	if diff := cmp.Diff(map[string]int{"lan0": 2}, (<-first).Lost); diff != "" {
		t.Error(diff)
	}
}
