package audit

import (
	"testing"

	"github.com/relink-cni/relink/pkg/attachment"
)

func TestDuplicates(t *testing.T) {
	for name, test := range map[string]struct {
		make func(w *Snapshot)
		want []string
		why  string
	}{
		"a new sandbox of the owner takes the address over": {func(w *Snapshot) {
			w.attach("c2", 2, "eth0", "lan", "10.3.0.2", web(0))
		}, []string{"information: duplicate address c1/eth0 10.3.0.2"},
			"shop/web-0 (sandbox c1) has it on eth0, and holds the lease; shop/web-1 (sandbox c2) has it on eth0, and holds the lease; " +
				"both are of one owner: the new sandbox takes the address over, and the one before has not ended yet"},
		"the API knows two owners": {func(w *Snapshot) {
			w.attach("c2", 2, "eth0", "lan", "10.3.0.2", web(0))
			w.network("lan").Leases[0].Holders[0].Owner = web(0)
			w.network("lan").Leases[0].Holders[1].Owner = web(7)
		}, []string{"error: duplicate address c1/eth0 10.3.0.2"}, ""},
		"two pods of an owner that has several": {func(w *Snapshot) {
			w.attach("c2", 2, "eth0", "lan", "10.3.0.2", web(0))
			for i := range w.network("lan").Leases[0].Holders {
				w.network("lan").Leases[0].Holders[i].Policy.Shared = true
			}
		}, []string{"error: duplicate address c1/eth0 10.3.0.2"}, ""},
		"a pod of such an owner is made again under its name": {func(w *Snapshot) {
			w.attach("c2", 2, "eth0", "lan", "10.3.0.2", web(0))
			for i := range w.network("lan").Leases[0].Holders {
				h := &w.network("lan").Leases[0].Holders[i]
				h.Policy.Shared, h.Pod = true, attachment.Pod{Namespace: "shop", Name: "pg-0", UID: h.ContainerID}
			}
		}, []string{"information: duplicate address c1/eth0 10.3.0.2"}, ""},
		"two holders of nobody": {func(w *Snapshot) {
			w.network("lan").Leases[0].Owner = attachment.Owner{}
			w.attach("c2", 2, "eth0", "lan", "10.3.0.2", attachment.Owner{})
		}, []string{"error: duplicate address c1/eth0 10.3.0.2"}, ""},
		"another pod of the network has it without a lease": {func(w *Snapshot) {
			w.record("c2", 2, "eth0", "lan", "", web(1))
			w.address(2, "10.3.0.2", "eth0", 3, 0)
		}, []string{"error: duplicate address c1/eth0 10.3.0.2"},
			"shop/web-0 (sandbox c1) has it on eth0, and holds the lease; shop/web-1 (sandbox c2) has it on eth0, without the lease; " +
				"they are in one network: each gets a part of the other's traffic. Delete one of the pods"},
		"another pod of the network by another name of it has it": {func(w *Snapshot) {
			w.record("c2", 2, "eth0", "vlan3", "", web(1)).LeaseStore = "lan"
			w.address(2, "10.3.0.2", "eth0", 3, 0)
		}, []string{"error: duplicate address c1/eth0 10.3.0.2"}, ""},
		"somebody on the same parent has it": {func(w *Snapshot) { w.address(2, "10.3.0.2", "net9", 3, 7) },
			[]string{"error: duplicate address c1/eth0 10.3.0.2"},
			"the network namespace at /run/netns/n2 has it on net9, without the lease; shop/web-0 (sandbox c1) has it on eth0, and holds the lease; " +
				"they are in one network: each gets a part of the other's traffic. Delete one of the pods"},
		"somebody on another parent has it":        {func(w *Snapshot) { w.address(2, "10.3.0.2", "net9", 3, 8) }, nil, ""},
		"somebody on no parent of the host has it": {func(w *Snapshot) { w.address(2, "10.3.0.2", "net9", 3, 0) }, nil, ""},
		"a pod of another network has it":          {func(w *Snapshot) { w.attach("c2", 2, "eth0", "san", "10.3.0.2", web(1)); w.setParent(2, 9) }, nil, ""},
	} {
		w := newSnapshot()
		w.runPod("c1", 1, "web-0")
		w.runPod("c2", 2, "web-1")
		w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
		test.make(&w)
		expect(t, name, Judge(w), test.want, test.why)
	}
}

// setParent puts the sandbox's devices on another device of the host.
func (w *Snapshot) setParent(n uint64, parent int) {
	for i := range w.Sandboxes.Live[namespace(n).File()].Addresses {
		w.Sandboxes.Live[namespace(n).File()].Addresses[i].Parent = parent
	}
}
