package capture_test

import (
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/fresh"
)

// swapped returns a sandbox with eth0 and net1. Both are remembered, and then exchange their names.
func swapped(t *testing.T, n *node) string {
	t.Helper()
	netns := fresh.Sandbox(t)
	for i, name := range []string{"eth0", "net1"} {
		fresh.IP(t, "", "link add link lan0 name tmp0 netns "+netns+" type macvlan mode bridge")
		fresh.Run(t, netns, "ip link set tmp0 name "+name+"; ip link set "+name+" up; ip addr add 10.9."+string(rune('1'+i))+".2/24 dev "+name)
	}
	n.Says(t, 0, "capture --attached eth0 --attached net1", "2 captured")
	fresh.Run(t, netns, "ip link set eth0 down; ip link set net1 down; ip link set eth0 name tmp0; ip link set net1 name eth0; ip link set tmp0 name net1; ip link set eth0 up; ip link set net1 up")
	return netns
}

func (n *node) byIfName(t *testing.T) map[string]checkpoint.Record {
	t.Helper()
	all := map[string]checkpoint.Record{}
	for _, r := range n.Records(t) {
		all[r.Attachment.IfName] = r
	}
	return all
}

// Each checkpoint stays with its interface. Only the name changes.
func TestRefreshOfSwappedNames(t *testing.T) {
	n := newNode(t)
	swapped(t, n)
	before := n.byIfName(t)
	n.Says(t, 0, "capture --refresh", "it was renamed from eth0 to net1", "it was renamed from net1 to eth0", "2 refreshed\n")
	after := n.byIfName(t)
	for ifName, name := range map[string]string{"eth0": "net1", "net1": "eth0"} {
		was, is := before[ifName].Interface, after[ifName].Interface
		if is.Link.Name != name || is.Link.MAC != was.Link.MAC || is.Link.Index != was.Link.Index || is.Addresses[0].Prefix != was.Addresses[0].Prefix {
			t.Errorf("%s is %+v %v, and was %+v %v", ifName, is.Link, is.Addresses, was.Link, was.Addresses)
		}
	}
	n.Says(t, 0, "check", "2 attachments as recorded, 0 not\n")
}

// What check advises, a capture accepts. A renamed interface that has lost a route has to be renamed back.
func TestAdviceForARenamedInterface(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "stock", "web", netns)
	n.Says(t, 0, "capture", "1 captured")
	fresh.Run(t, netns, "ip link set eth0 down; ip link set eth0 name web0 up")
	const lost = "route 0.0.0.0/0 via 10.9.0.1 is missing"
	if out := n.Says(t, 1, "check", "it is there as web0", lost, "ip link set web0 name eth0"); strings.Contains(out, "capture --refresh") {
		t.Errorf("capture --refresh is refused then:\n%s", out)
	}
	n.Says(t, 1, "capture --refresh", "it was renamed from eth0 to web0", lost, "1 refused")
	fresh.Run(t, netns, "ip route add default via 10.9.0.1 dev web0")
	n.Says(t, 1, "check", "it is there as web0", "relink capture --refresh")
	n.Says(t, 0, "capture --refresh", "it was renamed from eth0 to web0", "1 refreshed")
	n.Says(t, 0, "check", "1 attachment as recorded, 0 not\n")
}

// relink does not call an interface gone if it exists and cannot be remembered.
func TestRefreshOfWhatCanNotBeRemembered(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "stock", "web", netns)
	n.Says(t, 0, "capture", "1 captured")
	fresh.Run(t, netns, `ip link set eth0 down name "$(printf 'e\033[2Jth')"; ip link set "$(printf 'e\033[2Jth')" up`)
	out := n.Says(t, 1, "capture --refresh", "can't be remembered", "1 failed")
	if strings.Contains(out, "is gone") {
		t.Errorf("it is there:\n%s", out)
	}
	fresh.Run(t, netns, `ip link del "$(printf 'e\033[2Jth')"; ip link add eth0 type veth peer name peer`)
	n.Says(t, 1, "capture --refresh", "eth0 is there as eth0, a veth, and can't be remembered", "1 refused")
}

// A new interface under the old name of a renamed one does not count as the renamed one.
func TestCaptureOfANewInterfaceUnderAnOldName(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "stock", "web", netns)
	n.Says(t, 0, "capture", "1 captured")
	fresh.Run(t, netns, "ip link set eth0 down name web0 up; ip link add eth0 link web0 type macvlan; ip link set eth0 up")
	n.Says(t, 1, "capture", "1 kept, 1 refused\n", "its name is taken: web0 was renamed from eth0, and its checkpoint still has that name")
}
