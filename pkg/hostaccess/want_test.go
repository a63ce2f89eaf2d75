package hostaccess

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/attachment"
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
	return Of(webKey, o, 1500, all)
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
			for _, p := range test.access.reached(theNode) {
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
	i := a.inPod(theNode)
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

func TestLinkLocalAddressesAreLeftOut(t *testing.T) {
	if a := access(Options{}, "fe80::1", "10.3.0.2", "169.254.1.1"); !slices.Equal(a.Addresses, []netip.Addr{addr("10.3.0.2")}) {
		t.Error(a.Addresses)
	}
}

func TestNamesFollowFromTheAttachment(t *testing.T) {
	name := HostName(webKey)
	if len(name) > 15 || !strings.HasPrefix(name, "rl") || name != HostName(webKey) {
		t.Error(name)
	}
	other := webKey
	other.IfName = "net1"
	if HostName(other) == name || access(Options{}).MAC == Of(other, Options{}, 1500, nil).MAC {
		t.Error("two interfaces have one name, or one MAC")
	}
	other = webKey
	other.Network = "renamed"
	if HostName(other) != name {
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
		"the pod is left out first": {
			attachment.Key{Network: long, ContainerID: id, IfName: "eth0"}, attachment.Pod{Namespace: "shop", Name: long},
			fmt.Sprintf(`{"network":%q,"container":%q,"interface":"eth0"}`, long, id), false,
		},
		"nothing else can be left out": {attachment.Key{Network: long + long + long, ContainerID: id, IfName: "eth0"}, attachment.Pod{}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := Alias(test.key, test.pod)
			if text != test.want || (err != nil) != test.fails {
				t.Fatalf("%q, %v", text, err)
			}
			if key, ours := Whose(text); err == nil && (!ours || key != test.key) {
				t.Errorf("%v, %v", key, ours)
			}
		})
	}
	for _, text := range []string{"", "{}", "veth of somebody", `{"container":"c1"}`, `["lan"]`, `{"network":"lan","container":"","interface":"eth0"}`} {
		if _, ours := Whose(text); ours {
			t.Errorf("%q is taken for relink's", text)
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
