package capture

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// tornOn returns a torn checkpoint. left is its readable part.
func tornOn(id string, left checkpoint.Record) checkpoint.Unreadable {
	return checkpoint.Unreadable{ContainerID: id, IfName: "eth0", Err: checkpoint.ErrTorn, Partial: left}
}

// withName returns an interface of container c1 and its sandbox.
func withName(name string, index int) LiveInterface {
	f := found("c1", 1, func(i *netstate.Interface) { i.Link.Name, i.Link.Index = name, index })
	f.Attachment.IfName = name
	return f
}

// tornAt returns a torn checkpoint of container c1 that still has all of the interface.
func tornAt(ifName string, index int) checkpoint.Unreadable {
	u := tornOn("c1", recordOn("c1", 1, ""))
	u.IfName, u.Partial.Attachment.IfName = ifName, ifName
	u.Partial.Interface.Link.Name, u.Partial.Interface.Link.Index = ifName, index
	return u
}

func devicesOf(found ...LiveInterface) map[attachment.Namespace]netstate.Devices {
	var all netstate.Devices
	for _, f := range found {
		all = withDevice(all, f)
	}
	return map[attachment.Namespace]netstate.Devices{ns(1): all}
}

func TestDecideTorn(t *testing.T) {
	whole := recordOn("c1", 1, "")
	newer := tornOn("c1", whole)
	newer.Err = checkpoint.ErrVersion
	loses := func(i *netstate.Interface) { i.Addresses = nil }
	const byHand = ". Put that right by hand and capture again. To capture it as it is: relink forget c1 --force drops every checkpoint of this container ID, then relink capture writes them anew"
	for name, test := range map[string]struct {
		node Node
		want []decided
	}{
		"of another container ID, by its namespace": {
			Node{Interfaces: []LiveInterface{found("ns-1-10", 1, nil)}, Unreadable: []checkpoint.Unreadable{tornOn("c1", whole)}},
			[]decided{{Captured, "c1", "its checkpoint was torn: it is written anew"}},
		},
		"by the namespace of another checkpoint of its container": {
			Node{
				Interfaces: []LiveInterface{found("ns-1-10", 1, nil)}, Unreadable: []checkpoint.Unreadable{tornOn("c1", checkpoint.Record{})},
				Records: []checkpoint.Record{{Attachment: key("c1", "net1"), Namespace: ns(1), Interface: eth0(func(i *netstate.Interface) { i.Link.Name = "net1"; i.Link.Kind = "vlan" })}},
			},
			[]decided{{Captured, "c1", "its checkpoint was torn: it is written anew"}},
		},
		"of another namespace": {
			Node{Interfaces: []LiveInterface{found("ns-2-20", 2, nil)}, Unreadable: []checkpoint.Unreadable{tornOn("c1", whole)}, Evidence: map[attachment.Namespace]sandbox.Evidence{ns(1): {Verdict: sandbox.VerdictUnknown, Reason: "it is dark"}}},
			[]decided{
				{Captured, "ns-2-20", "it has no checkpoint"},
				{Refused, "c1", "its checkpoint is torn, and nobody knows whether its sandbox is gone (it is dark): relink forget c1 --force drops it, with every other checkpoint of this container ID"},
			},
		},
		"of another namespace, whose path the cache has for its container ID": {
			Node{Interfaces: []LiveInterface{found("c1", 2, nil)}, Unreadable: []checkpoint.Unreadable{tornOn("c1", whole)}, Evidence: map[attachment.Namespace]sandbox.Evidence{ns(1): {Verdict: sandbox.VerdictGone, Reason: "nothing keeps it"}}},
			[]decided{
				{Refused, "c1", "its name is that of a checkpoint of another namespace, /run/netns/a"},
				{Forgotten, "c1", "its checkpoint is torn, and its sandbox is gone: nothing keeps it"},
			},
		},
		"renamed, with another interface under its name": {
			Node{Interfaces: []LiveInterface{withName("net9", 5), withName("eth0", 6)}, Unreadable: []checkpoint.Unreadable{tornAt("eth0", 5)}, Devices: devicesOf(withName("net9", 5), withName("eth0", 6))},
			[]decided{
				{Captured, "c1", "its checkpoint was torn: it is written anew"},
				{Refused, "c1", "its name is taken: net9 was renamed from eth0, and its checkpoint still has that name"},
			},
		},
		"two that swapped names": {
			Node{Interfaces: []LiveInterface{withName("net1", 5), withName("eth0", 6)}, Unreadable: []checkpoint.Unreadable{tornAt("eth0", 5), tornAt("net1", 6)}, Devices: devicesOf(withName("net1", 5), withName("eth0", 6))},
			[]decided{
				{Captured, "c1", "its checkpoint was torn: it is written anew"},
				{Captured, "c1", "its checkpoint was torn: it is written anew"},
			},
		},
		"with an address that is not there": {
			Node{Interfaces: []LiveInterface{found("c1", 1, loses)}, Unreadable: []checkpoint.Unreadable{tornOn("c1", whole)}},
			[]decided{{Refused, "c1", "its checkpoint is torn, and what can be read of it is not there: address 10.0.0.2/24 is missing" + byHand}},
		},
		"without what is not there": {
			Node{Interfaces: []LiveInterface{found("c1", 1, loses)}, Unreadable: []checkpoint.Unreadable{tornOn("c1", checkpoint.Record{Namespace: ns(1)})}},
			[]decided{{Captured, "c1", "its checkpoint was torn: it is written anew"}},
		},
		"of an interface that is down": {
			Node{Interfaces: []LiveInterface{found("c1", 1, func(i *netstate.Interface) { i.Link.Up = false })}, Unreadable: []checkpoint.Unreadable{tornOn("c1", checkpoint.Record{})}},
			[]decided{{Refused, "c1", "its checkpoint is torn, and what can be read of it is not there: eth0 is down" + byHand}},
		},
		"newer": {
			Node{Interfaces: []LiveInterface{found("c1", 1, nil)}, Unreadable: []checkpoint.Unreadable{newer}},
			[]decided{{Refused, "c1", "its checkpoint cannot be read: unknown checkpoint version"}},
		},
		"gone, alive without its interface, and not to be told": {
			Node{
				Unreadable: []checkpoint.Unreadable{tornOn("c1", whole), tornOn("c2", recordOn("c2", 2, "")), tornOn("c3", checkpoint.Record{})},
				Evidence:   map[attachment.Namespace]sandbox.Evidence{ns(1): {Verdict: sandbox.VerdictGone, Reason: "nothing keeps it"}, ns(2): {Verdict: sandbox.VerdictAlive}},
			},
			[]decided{
				{Forgotten, "c1", "its checkpoint is torn, and its sandbox is gone: nothing keeps it"},
				{Refused, "c2", "its checkpoint is torn, and no interface of the sandbox is found for it: nothing can bring that back. relink forget c2 --force drops it, with every other checkpoint of this container ID"},
				{Refused, "c3", "its checkpoint is torn, and nothing tells which sandbox it is of: relink forget c3 --force drops it, with every other checkpoint of this container ID"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []decided
			for _, a := range Decide(test.node, true) {
				got = append(got, decided{a.State, a.Attachment.ContainerID, a.Reason})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The new checkpoint takes the name, the pod and the CNI parts of the torn one, as far as they can be read.
func TestATornCheckpointKeepsItsName(t *testing.T) {
	left := checkpoint.Record{
		Attachment: key("c1", "eth0"), Pod: attachment.Pod{Namespace: "shop", Name: "web-0"}, Namespace: ns(1),
		CNI: checkpoint.CNI{Config: []byte(`{"name": "lan"}`)},
	}
	unnamed := Identity{Attachment: attachment.Key{Network: checkpoint.NetworkUnknown, ContainerID: "ns-1-10", IfName: "eth0"}}
	for _, part := range []func(*checkpoint.Record){func(*checkpoint.Record) {}, func(r *checkpoint.Record) { *r = checkpoint.Record{Namespace: ns(1)} }} {
		is := left
		part(&is)
		a := Decide(Node{Interfaces: []LiveInterface{{Identity: unnamed, Namespace: ns(1), Live: eth0(nil)}}, Unreadable: []checkpoint.Unreadable{tornOn("c1", is)}}, true)[0]
		want := fmt.Sprint(attachment.Key{Network: checkpoint.NetworkUnknown, ContainerID: "c1", IfName: "eth0"}, is.Pod, string(is.CNI.Config))
		if is.Attachment.Network != "" {
			want = fmt.Sprint(is.Attachment, is.Pod, string(is.CNI.Config))
		}
		if got := fmt.Sprint(a.Attachment, a.Pod, string(a.cni.Config)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Checkpoints of one container that name two namespaces prove nothing.
func TestNamespaceOf(t *testing.T) {
	u := tornOn("c1", checkpoint.Record{})
	for name, test := range map[string]struct {
		own     attachment.Namespace
		records []checkpoint.Record
		want    attachment.Namespace
	}{
		"nothing":                         {},
		"its own":                         {ns(3), []checkpoint.Record{recordOn("c1", 1, "")}, ns(3)},
		"another checkpoint's":            {attachment.Namespace{}, []checkpoint.Record{recordOn("c2", 2, ""), recordOn("c1", 1, "")}, ns(1)},
		"of two that are not of the same": {attachment.Namespace{}, []checkpoint.Record{recordOn("c1", 1, ""), recordOn("c1", 2, "")}, attachment.Namespace{}},
	} {
		u.Partial.Namespace = test.own
		if got := unreadableNamespace(u, test.records); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
