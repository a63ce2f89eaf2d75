package whereabouts

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
)

// fakeCaches is a node whose CNI caches have these entries.
type fakeCaches struct {
	entries []cnicache.Entry
	// bare are containers of which the caches have no entry.
	bare    []string
	missing string
	torn    []string
	// with has the sandboxes by their address.
	with map[string]string
}

func (c fakeCaches) Entries(containerID string) (all []cnicache.Entry, known bool) {
	for _, e := range c.entries {
		if e.Attachment.ContainerID == containerID {
			all = append(all, e)
		}
	}
	return all, len(all) > 0 || slices.Contains(c.bare, containerID)
}

func (c fakeCaches) EntriesOf(network string) (all []cnicache.Entry) {
	for _, e := range c.entries {
		if e.Attachment.Network == network {
			all = append(all, e)
		}
	}
	return all
}

func (c fakeCaches) CacheProblems() (string, []string) { return c.missing, c.torn }

func (c fakeCaches) SandboxWith(a netip.Addr) string { return c.with[a.String()] }

// entry is what a cache has of an interface with an address.
func entry(network, id, ifName, address string) cnicache.Entry {
	return cnicache.Entry{
		Attachment: attachment.Key{Network: network, ContainerID: id, IfName: ifName},
		Result:     json.RawMessage(fmt.Sprintf(`{"cniVersion":"1.0.0","ips":[{"address":"%s/24"}]}`, address)),
	}
}

// The allocations of this node and network are imported. All others are counted, or need a look.
func TestOnANode(t *testing.T) {
	const c1 = `"5":{"id":"c1","podref":"shop/web-0","ifname":"net1"}`
	lan1 := entry("lan", "c1", "net1", "10.3.0.5")
	for name, test := range map[string]struct {
		allocations string
		node        fakeCaches
		// want are the entries, then what is unlisted and unknown, then how many are elsewhere and of other networks.
		want string
	}{
		"of this node":                                {c1, fakeCaches{entries: []cnicache.Entry{lan1}}, "10.3.0.5 c1 net1 web-0; ; ; 0 0"},
		"beside Multus's own":                         {c1, fakeCaches{entries: []cnicache.Entry{entry("multus", "c1", "eth0", "10.9.0.5"), lan1}}, "10.3.0.5 c1 net1 web-0; ; ; 0 0"},
		"of another node":                             {c1, fakeCaches{}, "; ; ; 1 0"},
		"of another network":                          {c1, fakeCaches{entries: []cnicache.Entry{entry("wan", "c1", "net1", "10.3.0.5")}}, "; ; ; 0 1"},
		"of a name in the caches":                     {c1, fakeCaches{bare: []string{"c1"}}, "10.3.0.5 c1 net1 web-0; ; ; 0 0"},
		"of an interface that the caches do not have": {c1, fakeCaches{entries: []cnicache.Entry{entry("multus", "c1", "eth0", "10.9.0.5")}}, "10.3.0.5 c1 net1 web-0; ; ; 0 0"},
		"two networks on one interface name":          {c1, fakeCaches{entries: []cnicache.Entry{entry("wan", "c1", "net1", "10.9.0.5"), lan1}}, "10.3.0.5 c1 net1 web-0; ; ; 0 0"},
		"an old one, by its address":                  {`"5":{"id":"c1"}`, fakeCaches{entries: []cnicache.Entry{entry("lan", "c1", "net2", "10.3.0.6"), lan1}}, "10.3.0.5 c1 net1 ; 10.3.0.6 c1 net2; ; 0 0"},
		"an old one, of another network":              {`"5":{"id":"c1"}`, fakeCaches{entries: []cnicache.Entry{entry("wan", "c1", "net1", "10.3.0.5")}}, "; ; ; 0 1"},
		"an old one, of which nothing is known": {
			`"5":{"id":"c1"}`, fakeCaches{bare: []string{"c1"}},
			"10.3.0.5 c1   torn: no CNI cache tells the interface of the sandbox c1; ; ; 0 0",
		},
		"a sandbox here has it, and no cache": {
			c1, fakeCaches{with: map[string]string{"10.3.0.5": "the network namespace at /n"}},
			"; ; 10.3.0.5 missing: the network namespace at /n has it, and no CNI cache of this node has the sandbox c1 of its allocation: delete the pod there; 0 0",
		},
		"a pod without an allocation":            {"", fakeCaches{entries: []cnicache.Entry{lan1}}, "; 10.3.0.5 c1 net1; ; 0 0"},
		"a pod whose allocation another one has": {`"5":{"id":"c9","ifname":"net1"}`, fakeCaches{entries: []cnicache.Entry{lan1}}, "; 10.3.0.5 c1 net1; ; 1 0"},
		"a pod of a range that is left out":      {"", fakeCaches{entries: []cnicache.Entry{entry("lan", "c1", "net1", "10.4.0.5")}}, "; 10.4.0.5 c1 net1; ; 0 0"},
		"a pod of another network":               {"", fakeCaches{entries: []cnicache.Entry{entry("wan", "c1", "net1", "10.3.0.5")}}, "; ; ; 0 0"},
		"a torn cache":                           {"", fakeCaches{torn: []string{"CNI cache /c: torn"}}, "; ; invalid IP ignored: CNI cache /c: torn: a pod may be left out because of that; 0 0"},
	} {
		p, err := Read([]byte(ipPool("x", "10.3.0.0/24", test.allocations)))
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.source(test.node, "lan", "ippools.json")
		if err != nil || s.Plugin != "Whereabouts" || s.Path != "ippools.json" || s.Noun != "allocation" {
			t.Errorf("%s: %v, %+v", name, err, s)
		}
		var entries, unlisted, unknown []string
		for _, e := range s.Entries {
			word := fmt.Sprintf("%s %s %s %s", e.Address, e.ContainerID, e.IfName, e.Pod.Name)
			if e.Torn != "" {
				word += " torn: " + e.Torn
			}
			entries = append(entries, word)
		}
		for _, e := range s.Unlisted {
			unlisted = append(unlisted, fmt.Sprintf("%s %s %s", e.Address, e.ContainerID, e.IfName))
		}
		for _, o := range s.Unknown {
			unknown = append(unknown, fmt.Sprintf("%s %s: %s", o.Address, o.State, o.Reason))
		}
		got := fmt.Sprintf("%s; %s; %s; %d %d", strings.Join(entries, ", "), strings.Join(unlisted, ", "), strings.Join(unknown, ", "), s.OnOtherNodes, s.OtherNetworks)
		if got != test.want {
			t.Errorf("%s: %s\nwant %s", name, got, test.want)
		}
	}
}

// Overlapping ranges of one network give an address twice.
func TestTwoAllocationsOfOneAddress(t *testing.T) {
	one := ipPool("one", "10.3.0.0/24", `"5":{"id":"c1","ifname":"net1"}`)
	for other, want := range map[string]string{
		`"5":{"id":"c1","ifname":"net1"}`: "",
		`"5":{"id":"c2","ifname":"net1"}`: "conflict: net1 of c1 has it by another allocation: delete one of the two pods",
		`"5":{"id":"c9","ifname":"net1"}`: "", // It is on another node.
	} {
		p, err := Read([]byte(listOf(one, ipPool("two", "10.3.0.0/16", other))))
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.source(fakeCaches{bare: []string{"c1", "c2"}}, "lan", "x")
		got := ""
		for _, o := range s.Unknown {
			got += fmt.Sprintf("%s: %s", o.State, o.Reason)
		}
		if err != nil || len(s.Entries) != 1 || got != want {
			t.Errorf("%s: %v, %+v, %q, want %q", other, err, s.Entries, got, want)
		}
	}
}

// Without caches, all allocations would look as if they were of other nodes.
func TestWithoutCaches(t *testing.T) {
	p, err := Read([]byte(ipPool("x", "10.3.0.0/24", `"5":{"id":"c1"}`)))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := p.source(fakeCaches{missing: "there is no CNI cache in /c"}, "lan", "x"); err == nil || err.Error() != "nothing tells which allocations are this node's: there is no CNI cache in /c" {
		t.Errorf("%v, %+v", err, s)
	}
}
