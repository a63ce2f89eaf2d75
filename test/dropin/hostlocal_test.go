package dropin

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

const several = "0.3.0"

func adds(n, first int, format string) []step {
	var all []step
	for i := range n {
		all = append(all, step{call: fmt.Sprintf("ADD c%d/eth0", i), want: fmt.Sprintf(format, first+i)})
	}
	return all
}

func TestAddressesAreGivenInTurn(t *testing.T) {
	small := `"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.2", "rangeEnd": "10.3.0.4"`
	tellAll(t, map[string]story{
		"one after the other":           {ipam: `"subnet": "10.3.0.0/24"`, steps: adds(4, 2, "10.3.0.%d/24")},
		"one after the other in ranges": {ipam: `"ranges": [[{"subnet": "10.3.0.0/24"}]]`, steps: adds(3, 2, "10.3.0.%d/24")},
		"IPv6":                          {ipam: `"subnet": "2001:db8::/64"`, steps: adds(3, 2, "2001:db8::%d/64")},
		"gateway elsewhere":             {ipam: `"subnet": "10.3.0.0/24", "gateway": "10.3.0.3"`, steps: []step{{call: "ADD c1/eth0", want: "10.3.0.1/24"}, {call: "ADD c2/eth0", want: "10.3.0.2/24"}, {call: "ADD c3/eth0", want: "10.3.0.4/24"}}},
		"gateway beyond the range":      {ipam: small + `, "gateway": "10.3.0.200"`, steps: adds(3, 2, "10.3.0.%d/24")},
		"the network's address":         {ipam: `"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.0"`, steps: []step{{call: "ADD c1/eth0", want: "10.3.0.0/24"}, {call: "ADD c2/eth0", want: "10.3.0.2/24"}}},
		"around": {ipam: small, steps: []step{
			{call: "ADD c1/eth0", want: "10.3.0.2/24"}, {call: "DEL c1/eth0", want: "ok"},
			{call: "ADD c2/eth0", want: "10.3.0.3/24"}, {call: "ADD c3/eth0", want: "10.3.0.4/24"},
			// The only one is in quarantine: given, as no other is free.
			{call: "ADD c4/eth0", want: "10.3.0.2/24"},
		}},
		"a crash loop doesn't get its address again": {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{
			{call: "ADD c1/eth0", want: "10.3.0.2/24"}, {call: "DEL c1/eth0", want: "ok"},
			{call: "ADD c1/eth0", want: "10.3.0.3/24"}, {call: "DEL c1/eth0", want: "ok"},
			{call: "ADD c1/eth0", want: "10.3.0.4/24"},
		}},
		// Without quarantine, as the address before it in turn is given at once again.
		"the last one again": {ipam: `"subnet": "10.3.0.0/30", "quarantine": "0s"`, steps: []step{
			{call: "ADD c1/eth0", want: "10.3.0.2/30"}, {call: "DEL c1/eth0", want: "ok"}, {call: "ADD c2/eth0", want: "10.3.0.2/30"},
		}},
		"exhausted": {ipam: small, steps: append(adds(3, 2, "10.3.0.%d/24"),
			step{call: "ADD c9/eth0", want: "error"}, step{call: "DEL c1/eth0", want: "ok"}, step{call: "ADD c9/eth0", want: "10.3.0.3/24"}, step{call: "ADD c8/eth0", want: "error"})},
		"nothing but the gateway": {ipam: `"subnet": "10.3.0.0/24", "rangeEnd": "10.3.0.1"`, steps: []step{{call: "ADD c1/eth0", want: "error"}}},
		"several ranges in a set": {ipam: `"ranges": [[{"subnet": "10.3.0.0/30"}, {"subnet": "10.4.0.0/30", "gateway": "10.4.0.2"}, {"subnet": "10.5.0.0/29", "rangeEnd": "10.5.0.3"}]]`, steps: []step{
			{call: "ADD c1/eth0", want: "10.3.0.2/30"}, {call: "ADD c2/eth0", want: "10.4.0.1/30"}, {call: "ADD c3/eth0", want: "10.5.0.2/29"},
			{call: "ADD c4/eth0", want: "10.5.0.3/29"}, {call: "ADD c5/eth0", want: "error"}, {call: "DEL c2/eth0", want: "ok"}, {call: "ADD c5/eth0", want: "10.4.0.1/30"},
		}},
		"two interfaces of a container": {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{
			{call: "ADD c1/eth0", want: "10.3.0.2/24"}, {call: "ADD c1/net1", want: "10.3.0.3/24"}, {call: "CHECK c1/eth0", want: "ok"},
			{call: "DEL c1/eth0", want: "ok"}, {call: "CHECK c1/eth0", want: "error"}, {call: "CHECK c1/net1", want: "ok"},
			{call: "DEL c1/net1", want: "ok"}, {call: "CHECK c1/net1", want: "error"},
		}},
		"two families": {ipam: `"ranges": [[{"subnet": "10.3.0.0/24"}, {"subnet": "10.4.0.0/24"}], [{"subnet": "2001:db8::/64"}]]`, steps: []step{
			{call: "ADD c1/eth0", want: "10.3.0.2/24 2001:db8::2/64"}, {call: "ADD c2/eth0", want: "10.3.0.3/24 2001:db8::3/64"}, {call: "DEL c1/eth0", want: "ok"}, {call: "CHECK c2/eth0", want: "ok"},
		}},
		"several sets of a family": {since: several, ipam: `"subnet": "10.3.0.0/24", "ranges": [[{"subnet": "10.4.0.0/24"}], [{"subnet": "2001:db8::/64"}], [{"subnet": "2001:db8:1::/64"}]]`, steps: []step{
			{call: "ADD c1/eth0", want: "10.3.0.2/24 10.4.0.2/24 2001:db8::2/64 2001:db8:1::2/64"}, {call: "CHECK c1/eth0", want: "ok"}, {call: "DEL c1/eth0", want: "ok"},
		}},
		"the runtime's ranges first": {since: several, ipam: `"subnet": "10.3.0.0/24", "ranges": [[{"subnet": "10.4.0.0/24"}]]`, steps: []step{
			{call: "ADD c1/eth0", beside: `"runtimeConfig": {"ipRanges": [[{"subnet": "10.5.0.0/24"}]]}`, want: "10.5.0.2/24 10.3.0.2/24 10.4.0.2/24"},
			// The sets' numbers are others now, and with them whose turn it is.
			{call: "ADD c2/eth0", want: "10.3.0.3/24 10.4.0.3/24"},
			{call: "DEL c1/eth0", want: "ok"}, {call: "DEL c2/eth0", want: "ok"},
		}},
		"the runtime's ranges alone": {steps: []step{
			{call: "ADD c1/eth0", beside: `"runtimeConfig": {"ipRanges": [[{"subnet": "10.5.0.0/24", "gateway": "10.5.0.9"}]]}`, want: "10.5.0.1/24"},
		}},
		"flat keys without a subnet": {ipam: `"gateway": "10.9.0.1", "rangeStart": "10.9.0.9", "ranges": [[{"subnet": "10.3.0.0/24"}]]`, steps: adds(2, 2, "10.3.0.%d/24")},
	})
}

func TestRequestedAddresses(t *testing.T) {
	ask := func(args, capability string) string {
		return `"args": {"cni": {"ips": [` + args + `]}}, "runtimeConfig": {"ips": [` + capability + `]}`
	}
	tellAll(t, map[string]story{
		"by CNI_ARGS": {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{
			{call: "ADD c1/eth0", args: "IP=10.3.0.88", want: "10.3.0.88/24"},
			{call: "ADD c2/eth0", args: "IgnoreUnknown=1;IP=10.3.0.99/24;OTHER=1", want: "10.3.0.99/24"},
			// What was asked for counts as given last.
			{call: "ADD c3/eth0", args: "IP=", want: "10.3.0.100/24"},
			{call: "ADD c4/eth0", args: "IP=10.3.0.88", want: "error"},
			{call: "ADD c4/eth0", args: "IP=10.3.0.1", want: "error"},
			{call: "ADD c4/eth0", args: "IP=10.4.0.88", want: "error"},
			{call: "ADD c4/eth0", args: "IP=here", want: "error"},
			{call: "ADD c4/eth0", args: "IP=10.3.0.4/33", want: "error"},
			{call: "ADD c4/eth0", args: "IP", want: "error"},
			{call: "DEL c4/eth0", want: "ok"},
			{call: "ADD c4/eth0", args: "IP=::ffff:10.3.0.4", want: "10.3.0.4/24"},
			{call: "DEL c1/eth0", args: "IP=10.3.0.88", want: "ok"},
			// It is in quarantine, but whoever asks for it means it.
			{call: "ADD c5/eth0", args: "IP=10.3.0.88", want: "10.3.0.88/24"},
		}},
		"by args and by the capability": {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{
			{call: "ADD c1/eth0", beside: ask(`"10.3.0.88"`, ``), want: "10.3.0.88/24"},
			{call: "ADD c2/eth0", beside: ask(``, `"10.3.0.89/24"`), want: "10.3.0.89/24"},
			{call: "ADD c3/eth0", beside: ask(`"10.3.0.90"`, `"10.3.0.90/16"`), args: "IP=10.3.0.90", want: "10.3.0.90/24"},
			{call: "ADD c4/eth0", beside: ask(`"10.3.0.91"`, `"10.3.0.92"`), want: "error"},
			{call: "ADD c4/eth0", beside: ask(`"10.3.0.90"`, ``), want: "error"},
			{call: "ADD c4/eth0", beside: ask(``, `"10.9.0.90"`), want: "error"},
			{call: "ADD c4/eth0", beside: ask(``, `""`), want: "error"},
			{call: "ADD c4/eth0", beside: ask(`"here"`, ``), want: "error"},
			{call: "CHECK c4/eth0", want: "error"},
			{call: "ADD c5/eth0", beside: `"args": {"cni": null}, "runtimeConfig": null`, args: "IP=10.3.0.100", want: "10.3.0.100/24"},
		}},
		"of a range in the middle": {ipam: `"ranges": [[{"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.10", "rangeEnd": "10.3.0.20"}, {"subnet": "10.4.0.0/16"}]]`, steps: []step{
			{call: "ADD c1/eth0", args: "IP=10.3.0.9", want: "error"},
			{call: "ADD c1/eth0", args: "IP=10.3.0.21", want: "error"},
			{call: "ADD c1/eth0", args: "IP=10.3.0.20", want: "10.3.0.20/24"},
			{call: "ADD c2/eth0", want: "10.4.0.2/16"},
			{call: "ADD c3/eth0", args: "IP=10.4.7.7", want: "10.4.7.7/16"},
		}},
		"of two families": {ipam: `"ranges": [[{"subnet": "172.16.1.0/24"}, {"subnet": "10.3.0.0/24"}], [{"subnet": "2001:db8:1::/48"}]]`, steps: []step{
			{call: "ADD c1/eth0", beside: ask(`"10.3.0.88", "2001:db8:1::999"`, ``), want: "10.3.0.88/24 2001:db8:1::999/48"},
			{call: "ADD c2/eth0", beside: ask(`"2001:db8:1::9"`, ``), want: "10.3.0.89/24 2001:db8:1::9/48"},
		}},
		"of several sets": {since: several, ipam: `"ranges": [[{"subnet": "10.3.0.0/24"}], [{"subnet": "10.4.0.0/24"}]]`, steps: []step{
			{call: "ADD c1/eth0", beside: ask(`"10.4.0.77", "10.3.0.88"`, ``), want: "10.3.0.88/24 10.4.0.77/24"},
			{call: "ADD c2/eth0", beside: ask(`"10.3.0.66", "10.3.0.67"`, ``), want: "error"},
			{call: "CHECK c2/eth0", want: "error"},
		}},
	})
}

func TestWhatElseAResultHas(t *testing.T) {
	one := func(want string) []step { return []step{{call: "ADD c1/eth0", want: want}} }
	tellAll(t, map[string]story{
		"routes": {ipam: `"ranges": [[{"subnet": "10.3.0.0/24"}], [{"subnet": "2001:db8::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"},
			{"dst": "192.168.0.0/16", "gw": "10.3.0.7"}, {"dst": "192.168.7.7/16"}, {"dst": "2001:db8:2::/64", "gw": "2001:db8::9"},
			{"dst": "10.9.0.0/16", "mtu": 1400, "advmss": 1360, "priority": 7, "table": 9, "scope": 253}]`, steps: one("10.3.0.2/24 2001:db8::2/64")},
		"no routes":                 {ipam: `"subnet": "10.3.0.0/24", "routes": []`, steps: one("10.3.0.2/24")},
		"routes of null":            {ipam: `"subnet": "10.3.0.0/24", "routes": null`, steps: one("10.3.0.2/24")},
		"resolvConf":                {ipam: `"subnet": "10.3.0.0/24", "resolvConf": "DIR/resolv.conf"`, steps: one("10.3.0.2/24")},
		"resolvConf with all":       {ipam: `"subnet": "10.3.0.0/24", "resolvConf": "DIR/all.conf"`, steps: one("10.3.0.2/24")},
		"resolvConf that is empty":  {ipam: `"subnet": "10.3.0.0/24", "resolvConf": "DIR/empty.conf"`, steps: one("10.3.0.2/24")},
		"no resolvConf":             {ipam: `"subnet": "10.3.0.0/24", "resolvConf": ""`, steps: one("10.3.0.2/24")},
		"resolvConf with long line": {ipam: `"subnet": "10.3.0.0/24", "resolvConf": "DIR/long.conf"`, steps: one("error")},
		"resolvConf that is missing": {ipam: `"subnet": "10.3.0.0/24", "resolvConf": "DIR/none.conf"`, steps: []step{
			{call: "ADD c1/eth0", want: "error"}, {call: "DEL c1/eth0", want: "ok"}, {call: "CHECK c1/eth0", want: "error"},
		}},
	})
}

func TestDelAndCheck(t *testing.T) {
	tellAll(t, map[string]story{
		"DEL of nobody":            {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{{call: "DEL c1/eth0", want: "ok"}, {call: "CHECK c1/eth0", want: "error"}, {call: "ADD c1/eth0", want: "10.3.0.2/24"}, {call: "DEL c2/eth0", want: "ok"}, {call: "CHECK c1/eth0", want: "ok"}}},
		"DEL twice":                {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{{call: "ADD c1/eth0", want: "10.3.0.2/24"}, {call: "DEL c1/eth0", want: "ok"}, {call: "DEL c1/eth0", want: "ok"}, {call: "CHECK c1/eth0", want: "error"}}},
		"DEL of a beginning":       {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{{call: "ADD c11/eth0", want: "10.3.0.2/24"}, {call: "DEL c1/eth0", want: "ok"}, {call: "DEL c11/eth", want: "ok"}, {call: "CHECK c11/eth0", want: "ok"}}},
		"CHECK":                    {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{{call: "ADD c1/eth0", want: "10.3.0.2/24"}, {call: "CHECK c1/eth0", want: "ok"}, {call: "CHECK c1/net1", want: "error"}, {call: "CHECK c2/eth0", want: "error"}}},
		"CHECK without prevResult": {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{{call: "ADD c1/eth0", want: "10.3.0.2/24"}, {call: "CHECK c1/eth0", beside: `"prevResult": null`, want: "ok"}}},
	})
}

func TestConfigurationsThatBothRefuse(t *testing.T) {
	refused := []step{{call: "ADD c1/eth0", want: "error"}}
	stories := map[string]story{}
	for _, ipam := range []string{
		``, `"ranges": []`, `"ranges": [[]]`, `"rangeStart": "10.3.0.9"`,
		`"subnet": "10.3.0.7/24"`, `"subnet": "2001:db8::1/64"`, `"subnet": "10.3.0.0/31"`, `"subnet": "10.3.0.0/32"`, `"subnet": "2001:db8::/127"`, `"subnet": "pods"`, `"subnet": 10`,
		`"subnet": "::ffff:10.3.0.0/120"`,
		`"subnet": "10.3.0.0/24", "rangeStart": "10.4.0.1"`, `"subnet": "10.3.0.0/24", "rangeEnd": "10.4.0.1"`, `"subnet": "10.3.0.0/24", "rangeStart": "here"`,
		`"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.9", "rangeEnd": "10.3.0.8"`, `"subnet": "10.3.0.0/24", "rangeEnd": "10.3.0.0"`,
		`"ranges": [[{"subnet": "10.3.0.0/22"}, {"subnet": "10.3.2.0/24"}]]`, `"ranges": [[{"subnet": "10.3.0.0/24"}, {"subnet": "2001:db8::/64"}]]`,
		`"ranges": [[{"subnet": "10.3.0.0/24"}, {"subnet": "10.4.0.0/24"}], [{"subnet": "10.4.0.0/25"}]]`,
		`"subnet": "10.3.0.0/24", "ranges": [[{"subnet": "10.3.0.0/24"}]]`, `"subnet": "10.3.0.0/24", "routes": [{"dst": "here"}]`,
	} {
		stories[ipam] = story{ipam: ipam, steps: refused}
	}
	tellAll(t, stories)
}

// Results before 0.3.0 have one place for each family.
func TestOldVersionsHaveOneAddressOfAFamily(t *testing.T) {
	st := story{ipam: `"ranges": [[{"subnet": "10.3.0.0/24"}], [{"subnet": "10.4.0.0/24"}]]`, steps: []step{
		{call: "ADD c1/eth0", want: "error"},
		// A DEL needs no ranges: what was given before they were changed must become free.
		{call: "DEL c1/eth0", want: "error", ours: "ok"},
	}}
	for _, version := range []string{"0.1.0", "0.2.0"} {
		t.Run(version, func(t *testing.T) { st.tell(t, version) })
	}
}

// Each of these is meant.
func TestKnownDifferences(t *testing.T) {
	tellAll(t, map[string]story{
		// An ADD that got its address and was killed before anybody read it is repeated by
		// some runtimes; host-local fails until a DEL.
		"ADD again": {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{
			{call: "ADD c1/eth0", want: "10.3.0.2/24"}, {call: "ADD c1/eth0", want: "error", ours: "10.3.0.2/24"}, {call: "ADD c2/eth0", want: "10.3.0.3/24"},
			{call: "ADD c1/eth0", want: "error", ours: "10.3.0.2/24"}, {call: "DEL c1/eth0", want: "ok"}, {call: "CHECK c1/eth0", want: "error"},
		}},
		"ADD again for the same address": {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{
			{call: "ADD c1/eth0", args: "IP=10.3.0.9", want: "10.3.0.9/24"}, {call: "ADD c1/eth0", args: "IP=10.3.0.9", want: "error", ours: "10.3.0.9/24"},
		}},
		// host-local gives a second address of the set, which nobody configures.
		"ADD again for another address": {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{
			{call: "ADD c1/eth0", want: "10.3.0.2/24"}, {call: "ADD c1/eth0", args: "IP=10.3.0.9", want: "10.3.0.9/24", ours: "error"}, {call: "CHECK c1/eth0", beside: `"prevResult": null`, want: "ok"},
		}},
		// A pod that is told of a gateway that it can't reach has no route and says nothing.
		"gateway outside of the subnet": {ipam: `"subnet": "10.3.0.0/24", "gateway": "10.4.0.1"`, steps: []step{{call: "ADD c1/eth0", want: "10.3.0.1/24", ours: "error"}}},
		// It gives the broadcast address, and goes on beyond the subnet.
		"start after the last address": {ipam: `"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.255"`, steps: []step{{call: "ADD c1/eth0", want: "10.3.0.255/24", ours: "error"}, {call: "ADD c2/eth0", want: "10.3.1.0/24", ours: "error"}}},
		// IPv6 writes IPv4's addresses so.
		"IPv4 within IPv6": {ipam: `"subnet": "::/64"`, steps: []step{{call: "ADD c1/eth0", want: "::2/64", ours: "error"}}},
		// CNI_ARGS name the pod, which relink reads; what else is in it is for others.
		"CNI_ARGS without IgnoreUnknown": {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{{call: "ADD c1/eth0", args: "K8S_POD_NAME=web-0", want: "error", ours: "10.3.0.2/24"}}},
		// host-local looks for any address at all.
		"CHECK of an address that is another's": {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{
			{call: "ADD c1/eth0", want: "10.3.0.2/24"},
			{call: "CHECK c1/eth0", beside: `"prevResult": {"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.3.0.9/24"}]}`, want: "ok", ours: "error"},
		}},
		// An ADD that fails leaves nothing, the turn of the sets before included; host-local
		// passes over an address of theirs each time.
		"turns after a failure": {since: several, ipam: `"ranges": [[{"subnet": "10.3.0.0/24"}], [{"subnet": "10.4.0.0/30"}]], "quarantine": "0s"`, steps: []step{
			{call: "ADD c1/eth0", want: "10.3.0.2/24 10.4.0.2/30"}, {call: "ADD c2/eth0", want: "error"}, {call: "DEL c1/eth0", want: "ok"},
			{call: "ADD c3/eth0", want: "10.3.0.4/24 10.4.0.2/30", ours: "10.3.0.3/24 10.4.0.2/30"},
		}},
		// A released address waits, so that neighbours' caches forget whose it was.
		"an address in quarantine": {ipam: `"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.2", "rangeEnd": "10.3.0.3"`, steps: []step{
			{call: "ADD c1/eth0", want: "10.3.0.2/24"}, {call: "ADD c2/eth0", want: "10.3.0.3/24"}, {call: "DEL c2/eth0", want: "ok"}, {call: "DEL c1/eth0", want: "ok"},
			{call: "ADD c3/eth0", want: "10.3.0.2/24", ours: "10.3.0.3/24"},
		}},
		// host-local prints it, and no runtime can read that.
		"a route to nowhere": {since: several, ipam: `"subnet": "10.3.0.0/24", "routes": [{"gw": "10.3.0.9"}]`, steps: []step{{call: "ADD c1/eth0", want: "10.3.0.2/24", ours: "error"}}},
		// It would depend on where the runtime was started.
		"a relative dataDir": {ipam: `"subnet": "10.3.0.0/24", "dataDir": "here"`, steps: []step{{call: "ADD c1/eth0", want: "10.3.0.2/24", ours: "error"}}},
		// What was given before the ranges were changed must become free.
		"DEL needs no ranges": {ipam: `"subnet": "10.3.0.7/24"`, steps: []step{{call: "DEL c1/eth0", want: "error", ours: "ok"}}},
		// And so for all else that an ADD would refuse.
		"DEL needs but the name": {ipam: `"subnet": "10.3.0.0/24"`, steps: []step{
			{call: "ADD c1/eth0", want: "10.3.0.2/24"},
			{call: "DEL c1/eth0", beside: `"runtimeConfig": {"ips": 7}, "dns": []`, want: "error", ours: "ok"},
			{call: "CHECK c1/eth0", want: "ok", ours: "error"},
		}},
	})
}

// Multus writes the addresses of a pod's annotation into one IP of CNI_ARGS, which host-local
// takes for none.
func TestRequestedAddressesInOneArgument(t *testing.T) {
	ask := func(id, ip, ours string) step {
		return step{call: "ADD " + id + "/eth0", args: "IgnoreUnknown=1;IP=" + ip, want: "error", ours: ours}
	}
	tellAll(t, map[string]story{
		"of two families": {ipam: `"ranges": [[{"subnet": "10.3.0.0/24"}], [{"subnet": "fd00:3::/64"}]]`, steps: []step{
			{call: "ADD c0/eth0", args: "IP=fd00:3::b", want: "10.3.0.2/24 fd00:3::b/64"},
			ask("c1", "10.3.0.7,fd00:3::7", "10.3.0.7/24 fd00:3::7/64"),
			ask("c2", "10.3.0.8/24,fd00:3::8/64", "10.3.0.8/24 fd00:3::8/64"),
			ask("c3", "fd00:3::9/64, 10.3.0.9", "10.3.0.9/24 fd00:3::9/64"),
			// It is refused whole, and nothing is given.
			ask("c5", "10.3.0.20,fd00:3::7", "error"),
			ask("c5", "10.3.0.20,10.3.0.21", "error"),
			ask("c5", "10.3.0.20,10.4.0.20", "error"),
			ask("c5", "10.3.0.20,", "error"),
			ask("c5", "10.3.0.20,10.3.0.20", "error"),
			ask("c5", "fd00:3::20,fd00:3:0::20", "error"),
			ask("c5", "10.3.0.20,fd00:3::/129", "error"),
			ask("c5", "10.3.0.20;fd00:3::20", "error"),
			{call: "CHECK c5/eth0", want: "error"},
			ask("c5", "10.3.0.20,fd00:3::20", "10.3.0.20/24 fd00:3::20/64"),
		}},
		"of one set": {ipam: `"ranges": [[{"subnet": "10.3.0.0/24"}, {"subnet": "10.4.0.0/24"}]]`, steps: []step{
			ask("c1", "10.3.0.7,10.4.0.7", "error"),
			{call: "ADD c1/eth0", args: "IP=10.4.0.7", want: "10.4.0.7/24"},
		}},
	})
}

// host-local answers STATUS and GC with nothing, whatever there is to say. relink-ipam's GC frees what the runtime does not list,
// once its sandbox is gone.
func TestStatusAndGCExist(t *testing.T) {
	st := story{ipam: `"subnet": "10.3.0.0/30", "statusExhausted": true`}
	dir := t.TempDir()
	for _, plugin := range []string{"host-local", "relink-ipam"} {
		s := &side{plugin, dir, dir, map[string]string{}, fresh.Sandbox(t)}
		own := s.plugin == "relink-ipam"
		for _, test := range []struct {
			do   step
			fail bool
			// ended says that the sandbox has ended before, and that there is a new one.
			ended bool
		}{
			{do: step{call: "STATUS"}},
			{do: step{call: "ADD c1/eth0"}},
			{do: step{call: "STATUS"}, fail: own},
			{do: step{call: "GC"}, fail: own},
			{do: step{call: "CHECK c1/eth0"}},
			{do: step{call: "GC", beside: `"cni.dev/valid-attachments": []`}},
			{do: step{call: "CHECK c1/eth0"}},
			{do: step{call: "GC", beside: `"cni.dev/valid-attachments": []`}, ended: true},
			{do: step{call: "CHECK c1/eth0"}, fail: own},
			{do: step{call: "STATUS"}},
			// Of host-local the first one has it still.
			{do: step{call: "ADD c2/eth0"}, fail: !own},
			{do: step{call: "GC", beside: `"cni.dev/valid-attachments": [{"containerID": "c2", "ifname": "eth0"}]`}, ended: true},
			{do: step{call: "CHECK c2/eth0"}, fail: !own},
			{do: step{call: "GC", beside: `"cni.dev/valid-attachments": null`}},
			{do: step{call: "CHECK c2/eth0"}, fail: true},
		} {
			if test.ended {
				testnode.EndSandbox(t, s.netns)
				s.netns = fresh.Sandbox(t)
			}
			if output, ok := s.run(t, "1.1.0", st, test.do); ok == test.fail {
				t.Errorf("%s: %+v: %s", s.plugin, test.do, output)
			}
		}
	}
}

func TestVersionsAreHostLocals(t *testing.T) {
	theirs, _ := execute(t, "host-local", "{}", "CNI_COMMAND=VERSION")
	ours, _ := execute(t, "relink-ipam", "{}", "CNI_COMMAND=VERSION")
	if diff := cmp.Diff(decoded(t, theirs), decoded(t, ours)); diff != "" {
		t.Errorf("(-host-local +relink-ipam):\n%s", diff)
	}
}

// Both can have one dataDir: a change of the type, and back, finds what there was.
func TestOneDirectoryForBoth(t *testing.T) {
	st, dir := story{ipam: `"subnet": "10.3.0.0/24"`}, t.TempDir()
	for _, plugin := range []string{"host-local", "relink-ipam", "host-local", "relink-ipam"} {
		s := &side{plugin, dir, dir, map[string]string{}, none}
		if output, ok := s.run(t, "1.1.0", st, step{call: "DEL c1/eth0"}); !ok {
			t.Errorf("%s: DEL: %s", plugin, output)
		}
		if output, ok := s.run(t, "1.1.0", st, step{call: "ADD c1/eth0"}); !ok {
			t.Errorf("%s: ADD: %s", plugin, output)
		}
	}
	if stores, err := filepath.Glob(filepath.Join(dir, "pods.db")); err != nil || len(stores) != 1 {
		t.Errorf("stores: %v, %v", stores, err)
	}
}
