package hostaccess

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netfilter"
)

var webKey = attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}

// access returns the host access of a pod with these addresses.
func access(o Options, addresses ...string) Access {
	var all []netip.Addr
	for _, a := range addresses {
		all = append(all, addr(a))
	}
	if o.Name == "" {
		o.Name = DefaultName
	}
	a, _ := NewAccess(webKey, attachment.Pod{}, o, 1500, all) // The names are short.
	return a
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

var theNode = Node{
	Addresses: []netip.Addr{addr("10.96.0.10"), addr("192.168.7.10"), addr("fd00:7::10")}, Source4: addr("192.168.7.10"), Source6: addr("fd00:7::10"),
}

func TestWhatAPodReachesThroughItsNode(t *testing.T) {
	for name, test := range map[string]struct {
		access Access
		want   string
	}{
		"one family: nothing of the other": {
			access(Options{}, "10.3.0.2"), "10.96.0.10/32 192.168.7.10/32 169.254.114.1/32",
		},
		"both": {
			access(Options{}, "10.3.0.2", "fd00:3::2"), "10.96.0.10/32 192.168.7.10/32 fd00:7::10/128 169.254.114.1/32 fd72:656c:696e:6b::1/128",
		},
		"an address of the node within the services has a route of its own: one of the pod's routes may be longer": {
			access(Options{Services: prefixes("10.96.0.0/12", "fd00:96::/108")}, "10.3.0.2"), "10.96.0.0/12 10.96.0.10/32 192.168.7.10/32 169.254.114.1/32",
		},
		"what is named twice": {
			access(Options{Services: prefixes("10.96.0.0/12"), Extra: prefixes("192.168.7.10/32", "169.254.20.10/32")}, "10.3.0.2"),
			"10.96.0.0/12 192.168.7.10/32 169.254.20.10/32 10.96.0.10/32 169.254.114.1/32",
		},
		"what is named within something else stays: somebody wants it": {
			access(Options{Services: prefixes("10.96.0.0/12"), Extra: prefixes("10.96.0.53/32")}, "10.3.0.2"),
			"10.96.0.0/12 10.96.0.53/32 10.96.0.10/32 192.168.7.10/32 169.254.114.1/32",
		},
		"the pod's own address is never sent to the node": {
			access(Options{}, "192.168.7.10"), "10.96.0.10/32 169.254.114.1/32",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range test.access.reachableNetworks(theNode) {
				got = append(got, p.String())
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("%s\nwant %s", strings.Join(got, " "), test.want)
			}
		})
	}
}

func TestPodsPartIsComplete(t *testing.T) {
	a := access(Options{PreserveSource: true, Mark: DefaultMark}, "10.3.0.2", "fd00:3::2")
	i := a.podInterface(theNode)
	var addresses, others []string
	for _, address := range i.Addresses {
		addresses = append(addresses, fmt.Sprintf("%s %#x", address.Prefix, address.Flags))
	}
	for _, r := range i.Routes {
		if r.Table == Table {
			others = append(others, r.Destination.String())
		}
	}
	for _, r := range i.Rules {
		others = append(others, fmt.Sprintf("%v %#x", r.IPv6, r.Selectors["fwmark"]))
	}
	if got := strings.Join(addresses, ", "); got != "10.3.0.2/32 0x0, fd00:3::2/128 0x2" {
		t.Error(got)
	}
	if got := strings.Join(others, ", "); got != "0.0.0.0/0, ::/0, false 0x10000000, true 0x10000000" {
		t.Error(got)
	}
	if i.Settings["ipv4/rp_filter"] != "2" || i.Settings["ipv6/accept_ra"] != "0" || !i.Link.NoARP || i.Link.MAC != a.MAC {
		t.Errorf("%v %+v", i.Settings, i.Link)
	}
}

// The host's end has IPv6 if the pod and the node have it, whatever the node says of new devices.
func TestSettingsOfTheHostsEnd(t *testing.T) {
	without := theNode
	without.NoIPv6 = true
	for name, test := range map[string]struct {
		access          Access
		node            Node
		always, atFirst string
	}{
		"both families": {
			access(Options{}, "10.3.0.2", "fd00:3::2"), theNode,
			"map[ipv6/accept_ra:0 ipv6/accept_redirects:0 ipv6/addr_gen_mode:1 ipv6/disable_ipv6:0]",
			"map[ipv4/rp_filter:1 ipv6/accept_ra:0 ipv6/accept_redirects:0 ipv6/addr_gen_mode:1 ipv6/disable_ipv6:0]",
		},
		"IPv4 alone: a kernel without IPv6 has none of the others": {
			access(Options{}, "10.3.0.2"), theNode, "map[]", "map[ipv4/rp_filter:1 ipv6/accept_ra:0 ipv6/accept_redirects:0 ipv6/addr_gen_mode:1]",
		},
		"a node without IPv6": {
			access(Options{}, "10.3.0.2", "fd00:3::2"), without, "map[]", "map[ipv4/rp_filter:1 ipv6/accept_ra:0 ipv6/accept_redirects:0 ipv6/addr_gen_mode:1]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(test.access.hostSettings(test.node)); got != test.always {
				t.Errorf("%s\nwant %s", got, test.always)
			}
			if got := fmt.Sprint(test.access.newHostSettings(test.node)); got != test.atFirst {
				t.Errorf("new: %s\nwant %s", got, test.atFirst)
			}
		})
	}
}

// Only what the node has translated, and what "extra" of some pod names, gets the node's address. A family without pods has no rules.
func TestMasqueradeChains(t *testing.T) {
	extra := prefixes("169.254.20.10/32", "10.50.0.0/16", "fd00:50::/64")
	first := access(Options{Masquerade: true, Services: prefixes("10.96.0.0/12"), Extra: extra[:1]}, "10.3.0.2", "fd00:3::2")
	second := access(Options{Masquerade: true, Extra: extra}, "10.3.0.3")
	without := access(Options{Extra: prefixes("10.60.0.0/16")}, "10.3.0.4")
	const marked = "-m mark --mark 0x10000000/0x10000000 -m conntrack "
	for name, test := range map[string]struct {
		accesses   []Access
		ipv4, ipv6 []string
	}{
		"nobody": {[]Access{without}, nil, nil},
		"one family": {[]Access{second}, []string{
			marked + "--ctstate DNAT -j SNAT --to-source 192.168.7.10",
			marked + "--ctorigdst 10.50.0.0/16 -j SNAT --to-source 192.168.7.10",
			marked + "--ctorigdst 169.254.20.10 -j SNAT --to-source 192.168.7.10",
		}, nil},
		"several pods": {[]Access{first, without, second}, []string{
			marked + "--ctstate DNAT -j SNAT --to-source 192.168.7.10",
			marked + "--ctorigdst 10.50.0.0/16 -j SNAT --to-source 192.168.7.10",
			marked + "--ctorigdst 169.254.20.10 -j SNAT --to-source 192.168.7.10",
		}, []string{
			marked + "--ctstate DNAT -j SNAT --to-source fd00:7::10", marked + "--ctorigdst fd00:50::/64 -j SNAT --to-source fd00:7::10",
		}},
	} {
		m := MasqueradeOf(theNode, test.accesses...)
		for family, want := range map[netfilter.Family][]string{netfilter.IPv4: test.ipv4, netfilter.IPv6: test.ipv6} {
			chains := m.chains(family)
			if diff := cmp.Diff(want, chains[1].Rules); diff != "" {
				t.Errorf("%s, %s: %s", name, family, diff)
			}
			if marks := len(chains[0].Rules); (marks == 1) != (len(want) > 0) {
				t.Errorf("%s, %s: %q", name, family, chains[0].Rules)
			}
		}
	}
}

// A pod changes nothing if the rules do already what it needs.
func TestWhichPodChangesTheRules(t *testing.T) {
	moved := theNode
	moved.Source4 = addr("192.168.7.99")
	made := MasqueradeOf(theNode, access(Options{Masquerade: true, Extra: prefixes("10.50.0.0/16")}, "10.3.0.2"))
	made.Applied = true
	half := made
	half.Applied = false
	for name, test := range map[string]struct {
		made, needed Masquerade
		covered      bool
	}{
		"the same":                 {made, made, true},
		"less":                     {made, MasqueradeOf(theNode, access(Options{Masquerade: true}, "10.3.0.3")), true},
		"nothing":                  {made, Masquerade{}, true},
		"a kill came between":      {half, made, false},
		"another network":          {made, MasqueradeOf(theNode, access(Options{Masquerade: true, Extra: prefixes("10.60.0.0/16")}, "10.3.0.3")), false},
		"another family":           {made, MasqueradeOf(theNode, access(Options{Masquerade: true}, "fd00:3::3")), false},
		"the node's address moved": {made, MasqueradeOf(moved, access(Options{Masquerade: true}, "10.3.0.3")), false},
	} {
		if got := test.made.Covers(test.needed); got != test.covered {
			t.Errorf("%s: %v", name, got)
		}
		joined := test.needed.Join(test.made)
		if joined.Applied = true; !joined.Covers(test.needed) || len(joined.Sources) == 0 {
			t.Errorf("%s: together they are %v", name, joined)
		}
	}
}

func TestLinkLocalAddressesAreLeftOut(t *testing.T) {
	if a := access(Options{}, "fe80::1", "10.3.0.2", "169.254.1.1"); !slices.Equal(a.Addresses, []netip.Addr{addr("10.3.0.2")}) {
		t.Error(a.Addresses)
	}
}

func TestNamesFollowFromTheAttachment(t *testing.T) {
	name, masquerading := HostName(webKey, false), HostName(webKey, true)
	if len(masquerading) > 15 || !strings.HasPrefix(name, "rl") || strings.HasPrefix(name, "rlm") || masquerading != "rlm"+name[2:] {
		t.Error(name, masquerading)
	}
	other := webKey
	other.IfName = "net1"
	if second, _ := NewAccess(other, attachment.Pod{}, Options{}, 1500, nil); second.HostName == name || access(Options{}).MAC == second.MAC {
		t.Error("two interfaces have one name, or one MAC")
	}
	other = webKey
	other.Network = "renamed"
	if HostName(other, false) != name {
		t.Error("the name depends on the network, which a DEL may know by another name")
	}
	if mac := access(Options{}).MAC; mac[1] != '2' && mac[1] != '6' && mac[1] != 'a' && mac[1] != 'e' {
		t.Errorf("MAC %s is not for local use", mac)
	}
}

func TestAliasSaysWhoseThePairIs(t *testing.T) {
	long := strings.Repeat("n", 90)
	id := strings.Repeat("a", 64)
	for name, test := range map[string]struct {
		key   attachment.Key
		pod   attachment.Pod
		want  string
		fails bool
	}{
		"all": {webKey, attachment.Pod{Namespace: "shop", Name: "web-0"}, `{"pod":"shop/web-0","network":"lan","container":"c1","interface":"eth0"}`, false},
		"not a long pod": {
			attachment.Key{Network: long[:60], ContainerID: id, IfName: "eth0"}, attachment.Pod{Namespace: "shop", Name: long},
			fmt.Sprintf(`{"network":%q,"container":%q,"interface":"eth0"}`, long[:60], id), false,
		},
		"nothing else can be left out": {attachment.Key{Network: long + long + long, ContainerID: id, IfName: "eth0"}, attachment.Pod{}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := NewAccess(test.key, test.pod, Options{}, 1500, nil)
			text := a.Alias
			if text != test.want || (err != nil) != test.fails {
				t.Fatalf("%q, %v", text, err)
			}
			if key, ours := ParseAlias(text); err == nil && (!ours || key != test.key) {
				t.Errorf("%v, %v", key, ours)
			}
		})
	}
	for _, text := range []string{"", "{}", "veth of somebody", `{"container":"c1"}`, `["lan"]`, `{"network":"lan","container":"","interface":"eth0"}`} {
		if _, ours := ParseAlias(text); ours {
			t.Errorf("%q is taken for relink's", text)
		}
	}
}

// An alias names the pod, unless the name is too long beside the others.
func TestSamePod(t *testing.T) {
	long := strings.Repeat("n", 60)
	of := func(network, id, pod string) string {
		a, err := NewAccess(attachment.Key{Network: network, ContainerID: id, IfName: "eth0"}, attachment.Pod{Namespace: "shop", Name: pod}, Options{}, 1500, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a.Alias
	}
	named, unnamed := of("lan", "c1", long+long), of(long, strings.Repeat("a", 64), long+long)
	if !strings.Contains(named, long+long) || strings.Contains(unnamed, long+long) {
		t.Fatalf("%s\n%s", named, unnamed)
	}
	noPod := of("lan", "c1", "")
	for _, s := range []struct {
		one, other string
		same       bool
	}{
		{named, unnamed, false}, {unnamed, unnamed, false}, {named, named, true}, {named, of("lan", "c2", long+long), true},
		{named, of("lan", "c2", long), false}, {noPod, noPod, false}, {"", "", false}, {named, "", false},
	} {
		if samePod(s.one, s.other) != s.same {
			t.Errorf("%s and %s: not %v", s.one, s.other, s.same)
		}
	}
}

func TestMarks(t *testing.T) {
	for text, want := range map[string]uint32{"0x10000000": 1 << 28, "1": 1, "0x80000000": 1 << 31, "256": 256, "0": 0, "3": 0, "0x100000000": 0, "-1": 0, "": 0, "x": 0} {
		if mark, ok := ParseMark(text); mark != want && ok || ok != (want != 0) {
			t.Errorf("%q: %#x, %v", text, mark, ok)
		}
	}
}
