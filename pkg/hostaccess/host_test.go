package hostaccess

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// of returns the host access of another container, with its end in the host.
func of(id string, index int, addresses ...string) (Access, netstate.Link) {
	key := attachment.Key{Network: "lan", ContainerID: id, IfName: "eth0"}
	a, _ := NewAccess(key, attachment.Pod{}, Options{Name: DefaultName}, 1500, access(Options{}, addresses...).Addresses)
	return a, netstate.Link{Kind: netstate.KindVeth, Name: a.HostName, Index: index, Up: true, Alias: a.Alias}
}

func hostOf(ends ...netstate.Link) hostState {
	s := hostState{ends: map[string]netstate.Link{"veth0": {Kind: netstate.KindVeth, Name: "veth0", Index: 99, Up: true}}}
	for _, l := range ends {
		s.ends[l.Name] = l
	}
	return s
}

func (s hostState) with(index int, to, source string) hostState {
	r := route(netip.MustParsePrefix(to), Table, hostProtocol)
	if source != "" {
		r.Source = addr(source)
	}
	s.routes = append(s.routes, kernel.TableRoute{Route: r, Index: index})
	return s
}

func (s hostState) ruled() hostState {
	s.rules = []netstate.Rule{hostRule(false), hostRule(true)}
	return s
}

func TestHostsPart(t *testing.T) {
	a, endA := of("a", 10, "10.3.0.2")
	b, endB := of("b", 11, "10.3.0.2")
	six, end6 := of("six", 12, "fd00:3::2")
	down := endA
	down.Up = false
	gone := netstate.Link{Name: "rl0", Index: 20, Up: true}
	without := Node{Source4: standIn4, Source6: standIn6}
	foreign := hostRule(false)
	foreign.Protocol = 0
	for name, test := range map[string]struct {
		state    hostState
		accesses []Access
		node     Node
		complete bool
		want     []string
	}{
		"all is there": {hostOf(endA).with(10, "10.3.0.2/32", "192.168.7.10").ruled(), []Access{a}, theNode, false, nil},
		"all is missing": {hostOf(endA), []Access{a}, theNode, false, []string{
			"route to 10.3.0.2 through " + a.HostName + " in the host: it is missing", "IPv4 rule to table 1140 in the host: it is missing",
		}},
		"a rule that somebody added by hand is as good": {
			func() hostState {
				s := hostOf(endA).with(10, "10.3.0.2/32", "192.168.7.10")
				s.rules = []netstate.Rule{foreign}
				return s
			}(), []Access{a}, theNode, false, nil,
		},
		"the node's address has moved": {hostOf(endA).with(10, "10.3.0.2/32", "192.168.7.9").ruled(), []Access{a}, theNode, false, []string{
			"route to 10.3.0.2 through " + a.HostName + " in the host: its source is 192.168.7.9, not 192.168.7.10",
		}},
		"the kernel has dropped the source, as it does for IPv6": {hostOf(end6).with(12, "fd00:3::2/128", "").ruled(), []Access{six}, theNode, false, []string{
			"route to fd00:3::2 through " + six.HostName + " in the host: it has no source, not fd00:7::10",
		}},
		"somebody else's device has the route": {hostOf(endA).with(99, "10.3.0.2/32", "192.168.7.10").ruled(), []Access{a}, theNode, false, []string{
			"route to 10.3.0.2 through " + a.HostName + " in the host: it goes through another device",
		}},
		"two sandboxes have the address for a moment: either will do": {
			hostOf(endA, endB).with(11, "10.3.0.2/32", "192.168.7.10").ruled(), []Access{a, b}, theNode, true, nil,
		},
		"a CHECK of the old sandbox leaves it to the new one": {hostOf(endA, endB).with(10, "10.3.0.2/32", "192.168.7.10").ruled(), []Access{b}, theNode, false, nil},
		"an address that the pod does not have any more": {
			hostOf(endA).with(10, "10.3.0.2/32", "192.168.7.10").with(10, "10.3.0.9/32", "192.168.7.10").ruled(), []Access{a}, theNode, false, []string{
				"route to 10.3.0.9/32 through " + a.HostName + " in the host: the pod does not have the address",
			},
		},
		"a stranger's route stays":           {hostOf(endA).with(10, "10.3.0.2/32", "192.168.7.10").with(99, "10.9.9.9/32", "").ruled(), []Access{a}, theNode, true, nil},
		"an end that is down takes no route": {hostOf(down).ruled(), []Access{a}, theNode, true, nil},
		"an end that is gone: its pod needs nothing": {hostOf().ruled(), []Access{a}, theNode, true, []string{
			"IPv4 rule to table 1140 in the host: no pod needs it", "IPv6 rule to table 1140 in the host: no pod needs it",
		}},
		"the node has no address": {hostOf(endA).with(10, "10.3.0.2/32", "192.168.7.10").ruled(), []Access{a}, without, false, []string{
			"route to 10.3.0.2 through " + a.HostName + " in the host: its source is 192.168.7.10, not 169.254.114.1",
			"address 169.254.114.1 of lo in the host: the node has no other one for its pods",
		}},
		"the node has addresses again": {
			func() hostState {
				s := hostOf(endA).with(10, "10.3.0.2/32", "192.168.7.10").ruled()
				s.localAddresses = []kernel.LocalAddress{own("169.254.114.1", 1)}
				return s
			}(), []Access{a}, theNode, false, []string{"address 169.254.114.1 of lo in the host: no route has it as its source"},
		},
		"an end without an alias is needed by its pod all the same": {
			func() hostState {
				s := hostOf(endA).with(10, "10.3.0.2/32", "192.168.7.10").ruled()
				unnamed := endA
				unnamed.Alias = ""
				s.ends[a.HostName] = unnamed
				return s
			}(), []Access{a}, theNode, true, nil,
		},
		"the last pod is gone": {hostOf().ruled(), nil, theNode, true, []string{
			"IPv4 rule to table 1140 in the host: no pod needs it", "IPv6 rule to table 1140 in the host: no pod needs it",
		}},
		"one pod of several is asked about: nothing goes":             {hostOf().ruled(), nil, theNode, false, nil},
		"a pair without a checkpoint may be an ADD's: the rules stay": {hostOf(endA).ruled(), nil, theNode, true, nil},
		"a veth with a name like ours is not ours": {hostOf(gone).ruled(), nil, theNode, true, []string{
			"IPv4 rule to table 1140 in the host: no pod needs it", "IPv6 rule to table 1140 in the host: no pod needs it",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := planHost(test.state, test.accesses, test.node, test.complete)
			if got, want := strings.Join(p.Steps(), "\n"), strings.Join(test.want, "\n"); got != want {
				t.Errorf("%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestManyRoutesAreOneLine(t *testing.T) {
	p := HostPlan{routeSteps: []string{"route to a: x", "route to b: x", "route to c: x", "route to d: x"}, otherSteps: []string{"IPv4 rule: y"}}
	want := "4 routes between the host and its pods differ. One of them: route to a: x\nIPv4 rule: y"
	if got := strings.Join(p.Summary(), "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
