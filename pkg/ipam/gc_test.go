package ipam

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
)

// A GC asks only about its own holders, and looks for no other namespace: the store can have holders of other networks, and of an earlier
// name of this one.
func TestGCAsksAboutItsOwnHolders(t *testing.T) {
	in := func(inode uint64) attachment.Namespace {
		return attachment.Namespace{Path: "/n", BootID: "b", Inode: inode}
	}
	l := lease.Lease{Address: addr("10.3.0.2"), Network: "pods", Holders: []lease.Holder{
		{ContainerID: "valid", IfName: "eth0", Namespace: in(1)}, {ContainerID: "old", IfName: "eth0", Network: "before", Namespace: in(2)},
		{ContainerID: "c1", IfName: "eth0", Namespace: in(3)}, {ContainerID: "c2", IfName: "eth0", Network: "pods", Namespace: in(4)},
	}}
	var asked []attachment.Namespace
	for _, g := range unlistedHolders([]lease.Lease{l}, "pods", map[types.GCAttachment]bool{{ContainerID: "valid", IfName: "eth0"}: true}) {
		asked = append(asked, g.Holder.Namespace)
	}
	if diff := cmp.Diff([]attachment.Namespace{in(3), in(4)}, asked); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
}

// gcNode is a node of this boot, on which pods have sandboxes.
type gcNode struct{ *node }

func newGCNode(t *testing.T) gcNode {
	t.Helper()
	c := gcNode{newNode(t, `"subnet": "10.3.0.0/24"`)}
	c.boot = thisBoot(t)
	return c
}

// attach is an ADD for a new sandbox. It returns the path of the sandbox.
func (c gcNode) attach(t *testing.T, id string) string {
	t.Helper()
	args := c.args(id+"/eth0", id)
	args.Netns = filepath.Join(t.TempDir(), "ns")
	fresh.At(t, args.Netns)
	if _, err := c.begin(t, args).Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	return args.Netns
}

// collect is a GC. What it says is in said.
func (c gcNode) collect(t *testing.T, list string) func() error {
	return func() error {
		c.stderr.Reset()
		return c.gc(t, list)
	}
}

func (c gcNode) says(t *testing.T, when, want string) {
	t.Helper()
	if diff := cmp.Diff(want, c.stderr.String()); diff != "" {
		t.Errorf("%s it says (-want +got):\n%s", when, diff)
	}
}

const keeps = "relink-ipam: GC keeps what the runtime does not list, as its network namespace is not proven gone: "

// The runtime made its list before the ADDs of these sandboxes. GC keeps what lives.
func TestGCWithAListFromBeforeTheADD(t *testing.T) {
	n := newGCNode(t)
	alive, gone := n.attach(t, "alive"), n.attach(t, "gone")
	fresh.Remove(t, gone)
	n.expectAtLast(t, "one lives", n.collect(t, "[]"), "10.3.0.2 held alive/eth0 alive", "10.3.0.3 quarantined gone/eth0 gone")
	n.says(t, "one lives", keeps+"10.3.0.2 of eth0 of alive on pods: it is at "+alive+"\n")
	fresh.Remove(t, alive)
	n.expectAtLast(t, "none lives", n.collect(t, "[]"), "10.3.0.2 quarantined alive/eth0 alive", "10.3.0.3 quarantined gone/eth0 gone")
	n.says(t, "none lives", "")
}

// Of many, the line names a few.
func TestGCSaysInOneLineWhatItKeeps(t *testing.T) {
	n := newGCNode(t)
	var named []string
	for i := range 5 {
		id := fmt.Sprintf("c%d", i)
		named = append(named, fmt.Sprintf("10.3.0.%d of eth0 of %s on pods: it is at %s", 2+i, id, n.attach(t, id)))
	}
	if err := n.collect(t, "[]")(); err != nil {
		t.Fatal(err)
	}
	n.says(t, "of five", keeps+strings.Join(named[:3], "; ")+"; and 2 more\n")
}

// Nothing leads to the namespace any more, and a socket is in it.
func TestGCKeepsWhatASocketKeeps(t *testing.T) {
	n := newGCNode(t)
	path := n.attach(t, "c1")
	socket := -1
	if err := fresh.In(path, func() { socket, _ = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) }); err != nil || socket < 0 {
		t.Fatal(socket, err)
	}
	fresh.Remove(t, path)
	if err := n.collect(t, "[]")(); err != nil {
		t.Fatal(err)
	}
	n.expect(t, "while the socket is open", "10.3.0.2 held c1/eth0 c1")
	n.says(t, "while the socket is open", fmt.Sprintf("%s10.3.0.2 of eth0 of c1 on pods: nothing leads to it at %s, but a socket of process %d keeps it\n", keeps, path, os.Getpid()))
	if err := unix.Close(socket); err != nil {
		t.Fatal(err)
	}
	n.expectAtLast(t, "when it is closed", n.collect(t, "[]"), "10.3.0.2 quarantined c1/eth0 c1")
}

// In a container the processes of the node are not seen. So nothing proves that they have left a namespace.
func TestGCThatSeesNotAllProcesses(t *testing.T) {
	n := newGCNode(t)
	path := n.attach(t, "c1")
	fresh.Remove(t, path)
	c := n.begin(t, n.gcArgs("[]"))
	c.seesAll = func() bool { return false }
	if err := c.GC(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.expect(t, "in a container", "10.3.0.2 held c1/eth0 c1")
	n.says(t, "in a container", keeps+"10.3.0.2 of eth0 of c1 on pods: it is not at "+path+
		", and what keeps it elsewhere cannot be seen: the processes of the node are not seen from here: run it outside of a container, or in the host's PID namespace\n")
	n.expectAtLast(t, "on the node", n.collect(t, "[]"), "10.3.0.2 quarantined c1/eth0 c1")
}

// A container was stopped and started again: it has its ID from before and another sandbox. The list is from before that.
func TestGCKnowsAContainerThatWasStartedAgain(t *testing.T) {
	n := newGCNode(t)
	fresh.Remove(t, n.attach(t, "c1"))
	is := n.attach(t, "c1")
	if err := n.collect(t, "[]")(); err != nil {
		t.Fatal(err)
	}
	n.expect(t, "with the list from before", "10.3.0.2 held c1/eth0 c1")
	n.says(t, "with the list from before", keeps+"10.3.0.2 of eth0 of c1 on pods: it is at "+is+"\n")
	fresh.Remove(t, is)
	if err := n.collect(t, `[{"containerID": "c1", "ifname": "eth0"}]`)(); err != nil {
		t.Fatal(err)
	}
	n.expect(t, "while the runtime lists it", "10.3.0.2 held c1/eth0 c1")
	n.says(t, "while the runtime lists it", "")
}

// A GC of one network gives up nothing of the other one, even if its sandbox is gone: the runtime's list has no attachment of that.
func TestGCOfTwoNetworksOfOneStore(t *testing.T) {
	n, san := newGCNode(t), newGCNode(t)
	san.dir, san.name, san.ipam = n.dir, "san", n.ipam+`, "store": "pods"`
	fresh.Remove(t, n.attach(t, "c1"))
	fresh.Remove(t, san.attach(t, "c2"))
	n.expectAtLast(t, "by the network of the store's name", n.collect(t, "[]"), "10.3.0.2 quarantined c1/eth0 c1", "10.3.0.3 held c2/eth0 c2")
	n.says(t, "by the network of the store's name", "")
	fresh.Remove(t, n.attach(t, "c3"))
	n.expectAtLast(t, "by the other one", san.collect(t, "[]"), "10.3.0.2 quarantined c1/eth0 c1", "10.3.0.3 quarantined c2/eth0 c2", "10.3.0.4 held c3/eth0 c3")
	san.says(t, "by the other one", "")
}
