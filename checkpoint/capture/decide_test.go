package capture

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

func ns(inode uint64) attachment.Namespace {
	return attachment.Namespace{Path: "/run/netns/a", BootID: "b", Device: 4, Inode: inode, Cookie: inode * 10}
}

// eth0 returns a macvlan with an address and a route.
func eth0(change func(*netstate.Interface)) netstate.Interface {
	i := netstate.Interface{
		Link: netstate.Link{
			Kind: netstate.KindMacvlan, Name: "eth0", MAC: "02:00:00:00:00:01", MTU: 1500, Up: true,
			Macvlan: &netstate.Macvlan{Mode: "bridge"},
		},
		Parents:   []netstate.Device{{Kind: netstate.KindBond, Name: "bond0", Bond: &netstate.Bond{}}},
		Addresses: []netstate.Address{{Prefix: netip.MustParsePrefix("10.0.0.2/24")}},
		Routes:    []netstate.Route{{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.0.0.1"), Table: 254}},
	}
	if change != nil {
		change(&i)
	}
	return i
}

func key(id, ifName string) attachment.Key {
	return attachment.Key{Network: "lan", ContainerID: id, IfName: ifName}
}

func found(id string, inode uint64, change func(*netstate.Interface)) LiveInterface {
	return LiveInterface{Identity: Identity{Attachment: key(id, "eth0")}, Namespace: ns(inode), Live: eth0(change)}
}

// Sandbox is a sandbox that was looked into.
type Sandbox struct {
	Namespace  attachment.Namespace
	Devices    netstate.Devices
	Interfaces []LiveInterface
}

// Node is all that runs on the node and all that is remembered.
type Node struct {
	Sandboxes  []Sandbox
	Records    []checkpoint.Record
	Unreadable []checkpoint.Unreadable
}

// Decide decides about the node as inspectNode does.
func Decide(node Node, refresh bool) (actions []InterfaceAction) {
	index := indexRecords(node.Records, node.Unreadable)
	for _, s := range node.Sandboxes {
		actions = append(actions, index.match(s.Namespace, s.Devices).decideSandbox(s.Interfaces, refresh)...)
	}
	if refresh {
		actions = append(actions, decideUnmatched(node.Unreadable, actions)...)
	}
	return actions
}

// nodeWith returns a node with the interfaces and what is remembered. The interfaces of a namespace are in one sandbox, with their devices.
func nodeWith(interfaces []LiveInterface, records []checkpoint.Record, unreadable ...checkpoint.Unreadable) Node {
	node := Node{Records: records, Unreadable: unreadable}
	for _, f := range interfaces {
		i := slices.IndexFunc(node.Sandboxes, func(s Sandbox) bool { return s.Namespace == f.Namespace })
		if i < 0 {
			i, node.Sandboxes = len(node.Sandboxes), append(node.Sandboxes, Sandbox{Namespace: f.Namespace})
		}
		s, link := &node.Sandboxes[i], f.Live.Link
		s.Interfaces = append(s.Interfaces, f)
		s.Devices = append(s.Devices, netstate.LiveDevice{Device: netstate.Device{Kind: link.Kind, Name: link.Name, MAC: link.MAC}, Index: link.Index})
	}
	return node
}

func recordOn(id string, inode uint64, writer string) checkpoint.Record {
	return checkpoint.Record{Attachment: key(id, "eth0"), Namespace: ns(inode), Interface: eth0(nil), Writer: writer}
}

// decided is the part of an action that a test compares.
type decided struct {
	Do     change.State
	ID     string
	Reason string
}

func TestDecide(t *testing.T) {
	torn := fmt.Errorf("%w: it ends early", checkpoint.ErrTorn)
	for name, test := range map[string]struct {
		node          Node
		plain, renews []decided // The decisions without and with refresh.
	}{
		"nothing there": {},
		"no checkpoint": {
			node:   nodeWith([]LiveInterface{found("c1", 1, nil)}, nil),
			plain:  []decided{{Captured, "c1", "it has no checkpoint"}},
			renews: []decided{{Captured, "c1", "it has no checkpoint"}},
		},
		"no checkpoint, and it does not look well": {
			node: nodeWith([]LiveInterface{
				found("c1", 1, func(i *netstate.Interface) { i.Link.Up = false }),
				{Identity: Identity{Attachment: key("c2", "eth0"), Note: "nobody knows it"}, Namespace: ns(2), Live: eth0(nil), ParentDown: "bond0"},
			}, nil),
			plain: []decided{
				{change.Refused, "c1", "it is down. The DEL of a killed ADD takes it away; if no plugin is at work on it, set it up first"},
				{Captured, "c2", "it has no checkpoint; nobody knows it; its parent bond0 is down"},
			},
			renews: []decided{
				{change.Refused, "c1", "it is down. The DEL of a killed ADD takes it away; if no plugin is at work on it, set it up first"},
				{Captured, "c2", "it has no checkpoint; nobody knows it; its parent bond0 is down"},
			},
		},
		"a checkpoint": {
			node:   nodeWith([]LiveInterface{found("c1", 1, nil)}, []checkpoint.Record{recordOn("c1", 1, "relink-macvlan")}),
			plain:  []decided{{change.Kept, "c1", "it has a checkpoint"}},
			renews: []decided{{Refreshed, "c1", "as it was recorded"}},
		},
		"a checkpoint under another container ID": {
			node:   nodeWith([]LiveInterface{found("other", 1, nil)}, []checkpoint.Record{recordOn("c1", 1, "")}),
			plain:  []decided{{change.Kept, "c1", "it has a checkpoint"}},
			renews: []decided{{Refreshed, "c1", "as it was recorded"}},
		},
		"a checkpoint of another namespace by the same name": {
			node:   nodeWith([]LiveInterface{found("c1", 1, nil)}, []checkpoint.Record{recordOn("c1", 2, "")}),
			plain:  []decided{{change.Refused, "c1", "its name is that of a checkpoint of another namespace, /run/netns/a"}},
			renews: []decided{{change.Refused, "c1", "its name is that of a checkpoint of another namespace, /run/netns/a"}},
		},
		"a torn checkpoint": {
			node:   nodeWith([]LiveInterface{found("c1", 1, nil)}, nil, checkpoint.Unreadable{ContainerID: "c1", IfName: "eth0", Err: torn}),
			plain:  []decided{{change.Refused, "c1", "its checkpoint cannot be read: torn or no checkpoint: it ends early"}},
			renews: []decided{{Captured, "c1", "its checkpoint was torn: it is written anew"}},
		},
		"a sandbox's directory that can't be read": {
			node:   nodeWith([]LiveInterface{found("c1", 1, nil)}, nil, checkpoint.Unreadable{ContainerID: "c1", Err: torn}),
			plain:  []decided{{change.Refused, "c1", "its checkpoint cannot be read: torn or no checkpoint: it ends early"}},
			renews: []decided{{change.Refused, "c1", "its checkpoint cannot be read: torn or no checkpoint: it ends early"}},
		},
		"gone from a living sandbox, and from a dead one": {
			node: Node{
				Sandboxes: []Sandbox{{Namespace: ns(1)}, {}},
				Records:   []checkpoint.Record{recordOn("c1", 1, ""), recordOn("c2", 2, "relink-macvlan"), recordOn("c3", 3, Writer)},
			},
			renews: []decided{{change.Refused, "c1", "eth0 is gone from the sandbox: relink restore brings it back"}},
		},
		"could not be looked at": {
			node: nodeWith([]LiveInterface{
				{Identity: Identity{Attachment: key("other", "eth0")}, Namespace: ns(1), Live: eth0(nil), Settled: change.Failed, Reason: "too many routes"},
				{Identity: Identity{Attachment: key("c2", "eth0")}, Namespace: ns(2), Live: eth0(nil), Settled: change.Failed, Reason: "too many routes"},
			}, []checkpoint.Record{recordOn("c1", 1, "")}),
			plain:  []decided{{change.Failed, "c1", "too many routes"}, {change.Failed, "c2", "too many routes"}},
			renews: []decided{{change.Failed, "c1", "too many routes"}, {change.Failed, "c2", "too many routes"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for refresh, want := range map[bool][]decided{false: test.plain, true: test.renews} {
				var got []decided
				for _, a := range Decide(test.node, refresh) {
					got = append(got, decided{a.State, a.Attachment.ContainerID, a.Reason})
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("refresh %v: %s", refresh, diff)
				}
			}
		})
	}
}

// A refresh announces nothing. So an announcement that was owed before is still owed.
func TestRefreshKeepsWhatIsOwed(t *testing.T) {
	for _, owed := range []bool{true, false} {
		r := recordOn("c1", 1, "relink-macvlan")
		r.AnnouncementOwed = owed
		actions := Decide(nodeWith([]LiveInterface{found("c1", 1, nil)}, []checkpoint.Record{r}), true)
		if got := recordOf(actions[0], Writer); actions[0].State != Refreshed || got.AnnouncementOwed != owed {
			t.Errorf("owed %v: %s, owed %v", owed, actions[0].State, got.AnnouncementOwed)
		}
	}
}

func TestRefreshIsNoWorse(t *testing.T) {
	const repair = ": relink restore repairs it"
	for name, test := range map[string]struct {
		change     func(*netstate.Interface)
		parentDown string
		want       change.State
		reason     string
	}{
		"down":            {func(i *netstate.Interface) { i.Link.Up = false }, "", change.Refused, "eth0 is down" + repair},
		"parent down":     {nil, "bond0", change.Refused, "its parent bond0 is down" + repair},
		"address lost":    {func(i *netstate.Interface) { i.Addresses = nil }, "", change.Refused, "address 10.0.0.2/24 is missing" + repair},
		"route lost":      {func(i *netstate.Interface) { i.Routes = nil }, "", change.Refused, "route 0.0.0.0/0 via 10.0.0.1 is missing" + repair},
		"another kind":    {func(i *netstate.Interface) { i.Link.Kind = netstate.KindVLAN }, "", change.Refused, "kind is vlan, not macvlan" + repair},
		"another parent":  {func(i *netstate.Interface) { i.Parents[0].Name = "bond1" }, "", change.Refused, "parent is bond1 (bond), not bond0 (bond)" + repair},
		"another MAC":     {func(i *netstate.Interface) { i.Link.MAC = "02:00:00:00:00:02" }, "", Refreshed, "MAC is 02:00:00:00:00:02, not 02:00:00:00:00:01"},
		"another MTU":     {func(i *netstate.Interface) { i.Link.MTU = 1400 }, "", Refreshed, "MTU is 1400, not 1500"},
		"another gateway": {func(i *netstate.Interface) { i.Routes[0].Gateway = netip.MustParseAddr("10.0.0.9") }, "", Refreshed, "route is 0.0.0.0/0 via 10.0.0.9, not 0.0.0.0/0 via 10.0.0.1"},
		"one address more": {func(i *netstate.Interface) {
			i.Addresses = append(i.Addresses, netstate.Address{Prefix: netip.MustParsePrefix("10.0.0.3/24")})
		}, "", Refreshed, "as it was recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			f := found("c1", 1, test.change)
			f.ParentDown = test.parentDown
			a := Decide(nodeWith([]LiveInterface{f}, []checkpoint.Record{recordOn("c1", 1, "")}), true)[0]
			if a.State != test.want || a.Reason != test.reason {
				t.Errorf("%s: %s", a.State, a.Reason)
			}
		})
	}
}

// An interface that was renamed is found by its index.
func TestRefreshOfARenamedInterface(t *testing.T) {
	const from = "it was renamed from eth0 to web0"
	for name, test := range map[string]struct {
		change func(*netstate.Interface)
		want   change.State
		reason string
	}{
		"nothing else": {func(*netstate.Interface) {}, Refreshed, from},
		"another MAC":  {func(i *netstate.Interface) { i.Link.MAC = "02:00:00:00:00:02" }, Refreshed, from + "; MAC is 02:00:00:00:00:02, not 02:00:00:00:00:01"},
		"a route lost": {func(i *netstate.Interface) { i.Routes = nil }, change.Refused, from + "; route 0.0.0.0/0 via 10.0.0.1 is missing: relink restore repairs it once it is renamed back"},
	} {
		t.Run(name, func(t *testing.T) {
			f := found("c1", 1, test.change)
			r := recordOn("c1", 1, "")
			f.Live.Link.Name, f.Live.Link.Index, r.Interface.Link.Index = "web0", 5, 5
			if a := Decide(nodeWith([]LiveInterface{f}, []checkpoint.Record{r}), true)[0]; a.State != test.want || a.Reason != test.reason {
				t.Errorf("%s: %s", a.State, a.Reason)
			}
		})
	}
}

func TestRefreshKeepsWhatTheKernelDoesNotKnow(t *testing.T) {
	r := recordOn("c1", 1, "relink-macvlan")
	r.Pod = attachment.Pod{Namespace: "shop", Name: "web"}
	r.CNI.Config = []byte(`{"name": "lan"}`)
	a := Decide(nodeWith([]LiveInterface{found("other", 1, nil)}, []checkpoint.Record{r}), true)[0]
	got := recordOf(a, Writer)
	if got.Attachment != r.Attachment || got.Pod != r.Pod || string(got.CNI.Config) != string(r.CNI.Config) ||
		got.Writer != Writer {
		t.Errorf("%+v", got)
	}
}
