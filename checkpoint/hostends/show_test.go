package hostends_test

import (
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/hostends"
	"github.com/relink-cni/relink/test/fresh"
)

// inspect returns what Inspect says of the node's pods. The host's problems have no pod.
func (n *node) inspect(t *testing.T, records []checkpoint.Record) (problems map[string][]string, well bool) {
	t.Helper()
	report, err := hostends.Inspect(t.Context(), n.Store, records, true)
	if err != nil {
		t.Fatal(err)
	}
	problems = map[string][]string{}
	if len(report.Problems) > 0 {
		problems["host"] = report.Problems
	}
	for _, p := range report.Pods {
		if len(p.Problems) > 0 {
			problems[p.Attachment.ContainerID] = p.Problems
		}
	}
	return problems, report.IsHealthy()
}

// A node without IPv6 has no path to a pod that has IPv6 alone.
func TestShowSeesThatThereIsNoPath(t *testing.T) {
	n := newNode(t)
	n.attachedBy(t, 2, `{"address": "fd00:9::2/64"}`, plainAccess)
	fresh.Run(t, "", "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6")
	t.Cleanup(func() { fresh.Run(t, "", "echo 0 >/proc/sys/net/ipv6/conf/all/disable_ipv6") })
	n.Says(t, 0, "restore", "")
	if problems, well := n.inspect(t, n.Records(t)); well || !strings.Contains(strings.Join(problems["c2"], "; "), "there is no path: the pod has the addresses [fd00:9::2]") {
		t.Errorf("problems %q", problems)
	}
}

// Everything is as it should be, and yet nothing comes through. Show asks, and names the devices for the firewall. A pod behind
// no firewall works.
func TestShowSeesAFirewall(t *testing.T) {
	n := newNode(t)
	p := n.attached(t, 2, plainAccess)
	n.attached(t, 3, plainAccess)
	if problems, well := n.inspect(t, n.Records(t)); !well || len(problems) > 0 {
		t.Errorf("before: %q", problems)
	}
	const advice = "A firewall of the node or of the pod may drop it: the device is "
	for name, s := range map[string]struct{ netns, drop, undo, who string }{
		"iptables of the node": {
			"", "iptables -A INPUT -i " + p.host + " -m conntrack --ctstate NEW -j DROP", "iptables -F INPUT", "the pod (10.9.0.2) does not reach 192.0.2.1: no answer within 1s. ",
		},
		"nftables of the pod": {
			p.netns, `nft add table inet guard; nft 'add chain inet guard input { type filter hook input priority 0; policy drop; }'; nft add rule inet guard input ip6 version 6 accept; nft add rule inet guard input ct state established accept`,
			"nft delete table inet guard", "the node (192.0.2.1) does not reach 10.9.0.2: no answer within 1s. ",
		},
		"strict nftables of the node": {
			"", `nft add table inet guard; nft 'add chain inet guard input { type filter hook input priority 0; policy drop; }'; nft add rule inet guard input ip6 version 6 accept; nft add rule inet guard input ct state established accept; nft add rule inet guard input iifname != ` + p.host + ` accept`,
			"nft delete table inet guard", "the pod (10.9.0.2) does not reach 192.0.2.1: no answer within 1s. ",
		},
		"a firewall of the node that refuses": {
			"", "iptables -A INPUT -i " + p.host + " -m conntrack --ctstate NEW -j REJECT --reject-with icmp-host-prohibited", "iptables -F INPUT", "the pod (10.9.0.2) does not reach 192.0.2.1: rejected on the way: no route to host. ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fresh.Run(t, s.netns, s.drop)
			problems, well := n.inspect(t, n.Records(t))
			fresh.Run(t, s.netns, s.undo)
			all := strings.Join(problems["c2"], "\n")
			if well || len(problems) != 1 || !strings.Contains(all, s.who+advice+p.host+" in the host and host0 in the pod") {
				t.Errorf("well: %v, problems: %q\nwant: %s", well, problems, s.who)
			}
			if len(problems["c2"]) != 1 {
				t.Errorf("the answers come through, and Show says: %q", problems["c2"])
			}
			if strings.Contains(all, p.ipv6) {
				t.Errorf("IPv6 comes through, and Show says: %s", all)
			}
		})
	}
}

// What differs is told without asking: no answer can come.
func TestShowNamesWhatDiffers(t *testing.T) {
	n := newNode(t)
	p := n.attached(t, 2, plainAccess)
	n.attached(t, 3, "")
	gone := n.attached(t, 4, plainAccess)
	fresh.Remove(t, gone.netns)
	fresh.Run(t, "", "ip rule del priority 1140")
	fresh.Run(t, p.netns, "ip link set host0 mtu 1400")
	problems, well := n.inspect(t, n.Records(t))
	for whose, want := range map[string]string{
		"host": "IPv4 rule to table 1140 in the host: it is missing", "c2": "host0: MTU is 1400, not 1500", "c4": "no network namespace",
	} {
		if !strings.Contains(strings.Join(problems[whose], "\n"), want) {
			t.Errorf("%s: %q, want %s", whose, problems[whose], want)
		}
	}
	if well || len(problems) != 3 {
		t.Errorf("well: %v, problems: %q", well, problems)
	}
	if out := fresh.IP(t, "", "rule") + fresh.IP(t, p.netns, "link show host0"); strings.Contains(out, "1140") || !strings.Contains(out, "mtu 1400") {
		t.Errorf("Show changed something: %s", out)
	}
}
