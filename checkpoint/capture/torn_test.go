package capture

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
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

func TestDecideTorn(t *testing.T) {
	whole := recordOn("c1", 1, "")
	newer := tornOn("c1", whole)
	newer.Err = checkpoint.ErrVersion
	loses := func(i *netstate.Interface) { i.Addresses = nil }
	const notFound = "its checkpoint is torn, and no interface of the sandbox is found for it: nothing can bring that back. relink forget c1 --force drops it, with every other checkpoint of this container ID"
	for name, test := range map[string]struct {
		node Node
		want []decided
	}{
		"of another container ID, by its namespace": {
			nodeWith([]LiveInterface{found("ns-1-10", 1, nil)}, nil, tornOn("c1", whole)),
			[]decided{{Captured, "c1", "its checkpoint was torn: it is written anew"}},
		},
		"of another namespace": {
			nodeWith([]LiveInterface{found("ns-2-20", 2, nil)}, nil, tornOn("c1", whole)),
			[]decided{
				{Captured, "ns-2-20", "it has no checkpoint"},
				{change.Refused, "c1", notFound},
			},
		},
		"of another namespace, whose path the cache has for its container ID": {
			nodeWith([]LiveInterface{found("c1", 2, nil)}, nil, tornOn("c1", whole)),
			[]decided{
				{change.Refused, "c1", "its name is that of a checkpoint of another namespace, /run/netns/a"},
				{change.Refused, "c1", notFound},
			},
		},
		"renamed, with another interface under its name": {
			nodeWith([]LiveInterface{withName("net9", 5), withName("eth0", 6)}, nil, tornAt("eth0", 5)),
			[]decided{
				{Captured, "c1", "its checkpoint was torn: it is written anew"},
				{change.Refused, "c1", "its name is taken: net9 was renamed from eth0, and its checkpoint still has that name"},
			},
		},
		"two that swapped names": {
			nodeWith([]LiveInterface{withName("net1", 5), withName("eth0", 6)}, nil, tornAt("eth0", 5), tornAt("net1", 6)),
			[]decided{
				{Captured, "c1", "its checkpoint was torn: it is written anew"},
				{Captured, "c1", "its checkpoint was torn: it is written anew"},
			},
		},
		"without what is not there": {
			nodeWith([]LiveInterface{found("c1", 1, loses)}, nil, tornOn("c1", checkpoint.Record{Namespace: ns(1)})),
			[]decided{{Captured, "c1", "its checkpoint was torn: it is written anew"}},
		},
		"of an interface that is down": {
			nodeWith([]LiveInterface{found("c1", 1, func(i *netstate.Interface) { i.Link.Up = false })}, nil, tornOn("c1", checkpoint.Record{})),
			[]decided{{change.Refused, "c1", "it is down. The DEL of a killed ADD takes it away; if no plugin is at work on it, set it up first"}},
		},
		"newer": {
			nodeWith([]LiveInterface{found("c1", 1, nil)}, nil, newer),
			[]decided{{change.Refused, "c1", "its checkpoint cannot be read: unknown checkpoint version"}},
		},
		"without its interface, and without a namespace": {
			nodeWith(nil, nil, tornOn("c1", whole), tornOn("c1", checkpoint.Record{})),
			[]decided{{change.Refused, "c1", notFound}, {change.Refused, "c1", notFound}},
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
		a := Decide(nodeWith([]LiveInterface{{Identity: unnamed, Namespace: ns(1), Live: eth0(nil)}}, nil, tornOn("c1", is)), true)[0]
		want := fmt.Sprint(attachment.Key{Network: checkpoint.NetworkUnknown, ContainerID: "c1", IfName: "eth0"}, is.Pod, string(is.CNI.Config))
		if is.Attachment.Network != "" {
			want = fmt.Sprint(is.Attachment, is.Pod, string(is.CNI.Config))
		}
		if got := fmt.Sprint(a.Attachment, a.Pod, string(a.cni.Config)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
