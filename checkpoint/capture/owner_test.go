package capture

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/netstate"
)

func TestOwnerOf(t *testing.T) {
	web := attachment.Pod{Namespace: "shop", Name: "web"}
	entry := func(network, id, ifName, mac string, delegate bool, inode uint64) cacheEntry {
		return cacheEntry{Entry: cnicache.Entry{
			Attachment: attachment.Key{Network: network, ContainerID: id, IfName: ifName}, Pod: web, MAC: mac, Delegate: delegate,
		}, namespace: attachment.NamespaceFile{Device: 4, Inode: inode}}
	}
	holder := func(network, id string, namespace attachment.Namespace) cacheEntry {
		e := entry(network, id, "eth0", "", false, 1)
		e.recorded = namespace
		return e
	}
	own := func(network, id string) attachment.Key {
		return attachment.Key{Network: network, ContainerID: id, IfName: "eth0"}
	}
	const mac, otherMAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
	unnamed := own("unknown", "ns-1-10")
	for name, test := range map[string]struct {
		cache []cacheEntry
		want  Identity
	}{
		"no cache": {
			nil, Identity{Attachment: unnamed, Note: "no CNI cache knows the sandbox: its container ID is made from the namespace"},
		},
		"another sandbox's": {
			[]cacheEntry{entry("lan", "c2", "eth0", mac, false, 2)},
			Identity{Attachment: unnamed, Note: "no CNI cache knows the sandbox: its container ID is made from the namespace"},
		},
		"its own": {
			[]cacheEntry{entry("lan", "c1", "eth0", mac, false, 1), entry("storage", "c1", "net1", "", false, 1)},
			Identity{Attachment: own("lan", "c1"), Pod: web, InCache: true},
		},
		"a MAC that was changed later": {
			[]cacheEntry{entry("lan", "c1", "eth0", otherMAC, false, 1)}, Identity{Attachment: own("lan", "c1"), Pod: web, InCache: true},
		},
		"Multus and its delegate": {
			[]cacheEntry{entry("multus", "c1", "eth0", mac, false, 1), entry("lan", "c1", "eth0", mac, true, 1)},
			Identity{Attachment: own("lan", "c1"), Pod: web, InCache: true},
		},
		"one left over at a path used again": {
			[]cacheEntry{entry("lan", "old", "eth0", otherMAC, false, 1), entry("lan", "c1", "eth0", mac, false, 1)},
			Identity{Attachment: own("lan", "c1"), Pod: web, InCache: true},
		},
		"two that nothing tells apart": {
			[]cacheEntry{entry("lan", "old", "eth0", "", false, 1), entry("lan", "c1", "eth0", "", false, 1)},
			Identity{Attachment: unnamed, Note: "the CNI caches have several container IDs for it: its container ID is made from the namespace"},
		},
		"no cache, but a lease, as a killed ADD leaves it": {
			[]cacheEntry{holder("lan", "c1", ns(1)), holder("lan", "old", attachment.Namespace{Device: 4, Inode: 1, Cookie: 9, BootID: ns(1).BootID})},
			Identity{Attachment: own("lan", "c1"), Pod: web, InCache: true},
		},
		"a cache before a lease: it has the configuration": {
			[]cacheEntry{entry("lan", "c1", "eth0", mac, false, 1), holder("other", "c1", ns(1))},
			Identity{Attachment: own("lan", "c1"), Pod: web, InCache: true},
		},
		"it has another name now": {
			[]cacheEntry{entry("lan", "c1", "net1", mac, false, 1)}, Identity{Attachment: attachment.Key{Network: "lan", ContainerID: "c1", IfName: "net1"}, Pod: web, InCache: true},
		},
		"another one has its MAC and its own name": {
			[]cacheEntry{entry("lan", "c1", "eth1", mac, false, 1)},
			Identity{Attachment: own("unknown", "c1"), Pod: web, Note: `no CNI cache knows the interface's network: it is remembered as "unknown"`},
		},
		"the sandbox, by another interface": {
			[]cacheEntry{entry("lan", "c1", "net1", "", false, 1)},
			Identity{Attachment: own("unknown", "c1"), Pod: web, Note: `no CNI cache knows the interface's network: it is remembered as "unknown"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := identify(ns(1), netstate.Devices{{Device: netstate.Device{Name: "eth1"}}}, netstate.Link{Name: "eth0", MAC: mac}, test.cache, nil)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnHost(t *testing.T) {
	there, inside, none := eth0(nil), eth0(nil), eth0(nil)
	inside.ParentsInSandbox = true
	none.Parents = nil
	if len(checkpoint.HostParents(there)) == 0 || len(checkpoint.HostParents(inside)) > 0 || len(checkpoint.HostParents(none)) > 0 {
		t.Error("only what is stacked on the host's is one that nobody names")
	}
}

func TestOriginOf(t *testing.T) {
	const alone = "no CNI cache has it, and it is on "
	for name, test := range map[string]struct {
		neighbours []sibling
		want       change.State
		why        string
	}{
		"alone on its parent": {nil, "", ""},
		"beside an attachment": {
			[]sibling{{"net1", false}, {"eth0", true}}, Skipped,
			alone + "the parent of eth0, lan0: it is taken to be the pod's own. If it was attached: relink capture --attached vrrp.51",
		},
		"beside others that nobody knows": {
			[]sibling{{"eth0", false}, {"net1", false}}, change.Refused,
			alone + "one parent, lan0, with eth0, net1: the pod can have made one on top of the other. Name the one that was attached: relink capture --attached vrrp.51",
		},
		"beside very many": {
			[]sibling{{"a", false}, {"b", false}, {"c", false}, {"d", false}, {"e", false}, {"f", false}, {"g", false}}, change.Refused,
			alone + "one parent, lan0, with a, b, c, d, e, and 2 more: the pod can have made one on top of the other. Name the one that was attached: relink capture --attached vrrp.51",
		},
	} {
		if got, why := originOf("vrrp.51", "lan0", test.neighbours); got != test.want || why != test.why {
			t.Errorf("%s: %q, %s", name, got, why)
		}
	}
}

// If no cache knows the owner, the other checkpoints of the namespace do.
func TestOwnerByNeighbours(t *testing.T) {
	web := attachment.Pod{Namespace: "shop", Name: "web"}
	of := func(id string, pod attachment.Pod) checkpoint.Record {
		return checkpoint.Record{Attachment: key(id, "net1"), Pod: pod, Namespace: ns(1)}
	}
	unnamed := Identity{
		Attachment: attachment.Key{Network: "unknown", ContainerID: "ns-1-10", IfName: "eth0"},
		Note:       "no CNI cache knows the sandbox: its container ID is made from the namespace",
	}
	told := func(id string, pod attachment.Pod) Identity {
		return Identity{
			Attachment: attachment.Key{Network: "unknown", ContainerID: id, IfName: "eth0"}, Pod: pod,
			Note: `no CNI cache knows the interface's network: it is remembered as "unknown"`,
		}
	}
	cached := []cacheEntry{{Entry: cnicache.Entry{Attachment: key("c9", "eth0")}, namespace: ns(1).File()}}
	for name, test := range map[string]struct {
		cache   []cacheEntry
		records []checkpoint.Record
		want    Identity
	}{
		"none":                         {nil, nil, unnamed},
		"one":                          {nil, []checkpoint.Record{of("c1", web)}, told("c1", web)},
		"two, of which one has no pod": {nil, []checkpoint.Record{of("c1", web), of("c1", attachment.Pod{})}, told("c1", web)},
		"two that disagree":            {nil, []checkpoint.Record{of("c1", web), of("c2", web)}, unnamed},
		"one that has no name either":  {nil, []checkpoint.Record{of("ns-1-10", attachment.Pod{})}, unnamed},
		"a cache goes before":          {cached, []checkpoint.Record{of("c1", web)}, Identity{Attachment: key("c9", "eth0"), InCache: true}},
	} {
		if diff := cmp.Diff(test.want, identify(ns(1), nil, netstate.Link{Name: "eth0"}, test.cache, test.records)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
