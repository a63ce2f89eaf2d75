package audit

import (
	"errors"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

func TestReservations(t *testing.T) {
	pod := attachment.Owner{Kind: attachment.OwnerPod, Namespace: "shop", Name: "web-0"}
	vm := attachment.Owner{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "shop", Name: "db", UID: "u2"}
	for name, test := range map[string]struct {
		of   attachment.Owner
		make func(w *Snapshot, l *lease.Lease)
		want []string
		why  string
	}{
		"its owner is gone": {web(0), func(w *Snapshot, _ *lease.Lease) {
			w.standing(web(0), owner.Gone, "StatefulSet shop/web has 0 replicas")
		},
			[]string{"information: reservation without owner last/eth0 10.3.0.2 proven"}, "its owner is gone: StatefulSet shop/web has 0 replicas"},
		"its owner lives, and its pod is not here": {web(0), func(w *Snapshot, _ *lease.Lease) { w.standing(web(0), owner.Exists, "it has 3 replicas") }, nil, ""},
		"the API does not answer": {web(0), func(w *Snapshot, _ *lease.Lease) { w.standing(web(0), owner.Unknown, "HTTP status 503") },
			[]string{"information: unknown last/eth0 10.3.0.2"}, "whether its owner is gone is not known: HTTP status 503"},
		"nobody was asked":          {web(0), func(*Snapshot, *lease.Lease) {}, nil, ""},
		"another ordinal was asked": {web(0), func(w *Snapshot, _ *lease.Lease) { w.standing(web(1), owner.Gone, "it has 1 replica") }, nil, ""},
		"an operator reserved it": {web(0), func(w *Snapshot, l *lease.Lease) {
			l.ByHand = true
			w.standing(web(0), owner.Gone, "404")
		}, nil, ""},
		"an operator's reservation is over": {web(0), func(w *Snapshot, l *lease.Lease) {
			l.ByHand, l.ByHandUntil = true, noon.Add(-time.Minute)
			w.standing(web(0), owner.Gone, "404")
		}, []string{"information: reservation without owner last/eth0 10.3.0.2 proven"}, "its owner is gone: 404"},
		"reserved for nobody": {attachment.Owner{}, func(w *Snapshot, _ *lease.Lease) { w.standing(attachment.Owner{}, owner.Gone, "404") }, nil, ""},
		"the owner's pod is on another network": {web(0), func(w *Snapshot, _ *lease.Lease) { w.runOnSAN(web(0)) },
			[]string{"information: reservation without owner last/eth0 10.3.0.2 proven"},
			"its owner lives: it has 3 replicas; the owner's pod runs in sandbox c1, which has eth0 on san and nothing in network lan: the owner does not use the address any more"},
		"a pod by its name is on another network": {pod, func(w *Snapshot, _ *lease.Lease) { w.runOnSAN(pod) },
			[]string{"information: reservation without owner last/eth0 10.3.0.2 proven"}, ""},
		"a pod by its name is on a network without leases": {pod, func(w *Snapshot, _ *lease.Lease) {
			w.standing(pod, owner.Exists, "it is there")
			w.runPod("c1", 1, "web-0")
			w.record("c1", 1, "eth0", "san", "", web(0))
		}, []string{"information: reservation without owner last/eth0 10.3.0.2 proven"}, ""},
		"the pod is on the network by another name of it": {web(0), func(w *Snapshot, _ *lease.Lease) {
			w.runOnSAN(web(0))
			w.Attached[0].LeaseStore = "lan"
		}, nil, ""},
		"nobody knows the store of the pod's interface": {pod, func(w *Snapshot, _ *lease.Lease) {
			w.standing(pod, owner.Exists, "it is there")
			w.runPod("c1", 1, "web-0")
			w.record("c1", 1, "eth0", "san", "", web(0)).LeaseStore = ""
		}, nil, ""},
		"a VM can plug the interface in again":       {vm, func(w *Snapshot, _ *lease.Lease) { w.runOnSAN(vm) }, nil, ""},
		"many pods can have the owner":               {attachment.Owner{Group: "apps", Kind: "ReplicaSet", Namespace: "shop", Name: "web", UID: "u1"}, func(w *Snapshot, l *lease.Lease) { w.runOnSAN(l.Owner) }, nil, ""},
		"the API does not answer, and the pod moved": {web(0), func(w *Snapshot, _ *lease.Lease) { w.runOnSAN(web(0)); w.standing(web(0), owner.Unknown, "403") }, []string{"information: unknown last/eth0 10.3.0.2"}, "whether its owner is gone is not known: 403"},
		"the pod has another interface on it": {web(0), func(w *Snapshot, _ *lease.Lease) {
			w.runOnSAN(web(0))
			w.attach("c1", 1, "net1", "lan", "10.3.0.9", web(0))
		},
			[]string{"information: reservation without owner last/eth0 10.3.0.2 proven"}, ""},
		"the pod has no second interface on it any more": {web(0), func(w *Snapshot, l *lease.Lease) {
			l.Last.IfName = "net1"
			w.standing(web(0), owner.Exists, "it has 3 replicas")
			w.runPod("c1", 1, "web-0")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.9", web(0))
		}, []string{"information: reservation without owner last/net1 10.3.0.2 proven"}, "its owner lives: it has 3 replicas; the owner's pod runs in sandbox c1, which has eth0 on lan and no net1 in network lan: the owner does not use the address any more"},
		"the pod has the interface on it": {web(0), func(w *Snapshot, l *lease.Lease) {
			l.Last.IfName = "net1"
			w.runOnSAN(web(0))
			w.attach("c1", 1, "net1", "lan", "10.3.0.9", web(0))
		}, nil, ""},
		"nobody knows which interface had it": {web(0), func(w *Snapshot, l *lease.Lease) {
			l.Last.IfName = ""
			w.runOnSAN(web(0))
			w.attach("c1", 1, "net1", "lan", "10.3.0.9", web(0))
		}, nil, ""},
		"the pod has it on the network without lease": {web(0), func(w *Snapshot, l *lease.Lease) {
			w.runOnSAN(web(0))
			w.record("c1", 1, "net1", "lan", "", web(0))
			l.Last.IfName = "net1"
		}, nil, ""},
		"the pod was attached a moment ago": {web(0), func(w *Snapshot, _ *lease.Lease) {
			w.runOnSAN(web(0))
			w.Attached[0].Record.CapturedAt = noon.Add(-time.Minute)
		}, nil, ""},
		"the pod's sandbox has stopped": {web(0), func(w *Snapshot, _ *lease.Lease) {
			w.runOnSAN(web(0))
			w.Sandboxes.Runtime["c1"] = sandbox.RuntimeSandbox{ContainerID: "c1"}
		}, nil, ""},
		"the pod has a checkpoint that cannot be read": {web(0), func(w *Snapshot, _ *lease.Lease) {
			w.runOnSAN(web(0))
			w.Unreadable = []Unreadable{{Unreadable: checkpoint.Unreadable{ContainerID: "c1", IfName: "net1", Err: errors.New("torn")}}}
		}, []string{"error: unknown c1/net1"}, ""},
		"relink has attached the owner's pod to nothing": {web(0), func(w *Snapshot, _ *lease.Lease) { w.runUnattached(web(0)) },
			[]string{"information: reservation without owner last/eth0 10.3.0.2 proven"},
			"its owner lives: it has 3 replicas; the owner's pod runs in sandbox c1, which relink has attached to nothing: the owner does not use the address any more"},
		"its sandbox was made a moment ago": {web(0), func(w *Snapshot, _ *lease.Lease) {
			w.runUnattached(web(0))
			w.Owners.Unattached[web(0)][0].Created = noon.Add(-time.Minute)
		}, nil, ""},
		"two sandboxes that are attached to nothing": {web(0), func(w *Snapshot, _ *lease.Lease) {
			w.runUnattached(web(0))
			w.Owners.Unattached[web(0)] = append(w.Owners.Unattached[web(0)], sandbox.RuntimeSandbox{ContainerID: "c2", Ready: true})
		}, nil, ""},
		"attached to nothing, but a checkpoint cannot be read": {web(0), func(w *Snapshot, _ *lease.Lease) {
			w.runUnattached(web(0))
			w.Unreadable = []Unreadable{{Unreadable: checkpoint.Unreadable{ContainerID: "c1", IfName: "net1", Err: errors.New("torn")}}}
		}, []string{"error: unknown c1/net1"}, ""},
		"attached to nothing, but leases cannot be read": {web(0), func(w *Snapshot, _ *lease.Lease) {
			w.runUnattached(web(0))
			w.Networks = append(w.Networks, Network{Name: "san", Problem: "torn"})
		}, []string{"error: unknown"}, ""},
		"a VM that relink has attached to nothing":   {vm, func(w *Snapshot, _ *lease.Lease) { w.runUnattached(vm) }, nil, ""},
		"attached to nothing, and the API is silent": {web(0), func(w *Snapshot, _ *lease.Lease) { w.runUnattached(web(0)); w.standing(web(0), owner.Unknown, "403") }, []string{"information: unknown last/eth0 10.3.0.2"}, ""},
		"the owner's pod is on another node": {web(0), func(w *Snapshot, _ *lease.Lease) { w.runElsewhere(web(0)) },
			[]string{"information: reservation without owner last/eth0 10.3.0.2 proven"},
			"its owner lives: it has 3 replicas; its pod shop/web-0 is on node node2"},
		"it is on another node, and the address is of a pool":      {web(0), func(w *Snapshot, _ *lease.Lease) { w.runElsewhere(web(0)); w.network("lan").Pools = true }, nil, ""},
		"it is on another node, and the API knows the address":     {web(0), func(w *Snapshot, l *lease.Lease) { w.runElsewhere(web(0)); l.Claimed = true }, nil, ""},
		"it is on another node, and the address waits for a time":  {web(0), func(w *Snapshot, l *lease.Lease) { w.runElsewhere(web(0)); l.Until = noon.Add(time.Hour) }, nil, ""},
		"it is on another node, and has had the address here":      {web(0), func(w *Snapshot, l *lease.Lease) { w.runElsewhere(web(0)); l.Last.Pod.UID = "uid-of-web-0" }, nil, ""},
		"it is on another node, and a sandbox of it is still here": {web(0), func(w *Snapshot, _ *lease.Lease) { w.runElsewhere(web(0)); w.runPod("c1", 1, "web-0") }, nil, ""},
		"it is on another node, and one is attached here": {web(0), func(w *Snapshot, _ *lease.Lease) {
			w.runElsewhere(web(0))
			w.runPod("c1", 1, "of-another-name")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.9", web(0))
		}, nil, ""},
		"it is on another node, and the runtime is silent": {web(0), func(w *Snapshot, _ *lease.Lease) { w.runElsewhere(web(0)); w.Sandboxes.NotAsked = "down" }, nil, ""},
		"it is on another node, and leases cannot be read": {web(0), func(w *Snapshot, _ *lease.Lease) {
			w.runElsewhere(web(0))
			w.Networks = append(w.Networks, Network{Name: "san", Problem: "torn"})
		}, []string{"error: unknown"}, ""},
		"two sandboxes of the owner": {web(0), func(w *Snapshot, _ *lease.Lease) {
			w.runOnSAN(web(0))
			w.runPod("c2", 2, "web-0")
			w.attach("c2", 2, "eth0", "san", "10.4.0.3", web(0))
		}, nil, ""},
	} {
		w := newSnapshot()
		l := w.reserve("lan", "10.3.0.2", "eth0", test.of)
		test.make(&w, l)
		expect(t, name, Judge(w), test.want, test.why)
	}
}

// runOnSAN runs the owner's pod on the network san.
func (w *Snapshot) runOnSAN(o attachment.Owner) {
	w.standing(o, owner.Exists, "it has 3 replicas")
	w.runPod("c1", 1, "web-0")
	w.attach("c1", 1, "eth0", "san", "10.4.0.2", o)
}

// runElsewhere has the owner's pod on another node.
func (w *Snapshot) runElsewhere(o attachment.Owner) {
	w.Owners.Judged[o] = owner.Judgement{Owner: o, Standing: owner.Exists, Reason: "it has 3 replicas", RemotePodUID: "uid-of-web-0", PodLocation: "its pod shop/web-0 is on node node2"}
}

// runUnattached runs the owner's pod on somebody else's network.
func (w *Snapshot) runUnattached(o attachment.Owner) {
	w.standing(o, owner.Exists, "it has 3 replicas")
	w.Owners.Unattached = map[attachment.Owner][]sandbox.RuntimeSandbox{o: {{ContainerID: "c1", Ready: true, Created: noon.Add(-time.Hour)}}}
}
