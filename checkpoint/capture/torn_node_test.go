package capture_test

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/fresh"
)

// tear cuts the node's only checkpoint to this part of its bytes, and returns the checkpoint as it was.
func (n *node) tear(t *testing.T, part float64) checkpoint.Record {
	t.Helper()
	records := n.Records(t)
	if len(records) != 1 {
		t.Fatalf("%d checkpoints", len(records))
	}
	path := n.file(records[0])
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, int64(part*float64(info.Size())))
	}
	if err != nil {
		t.Fatal(err)
	}
	return records[0]
}

func (n *node) file(r checkpoint.Record) string {
	return filepath.Join(n.Store.Dir(), r.Attachment.ContainerID, r.Attachment.IfName+".json")
}

// expectRewritten expects that capture --refresh writes the torn checkpoint anew, and that a restore from it builds the same
// interface.
func (n *node) expectRewritten(t *testing.T, netns string, was checkpoint.Record) {
	t.Helper()
	before := state(t, netns)
	n.Says(t, 1, "list", "torn or no checkpoint", "relink capture --refresh "+was.Attachment.ContainerID+" mends it")
	n.Says(t, 1, "capture", "its checkpoint cannot be read", "1 refused\n")
	n.Says(t, 0, "capture --refresh "+was.Attachment.ContainerID, "its checkpoint was torn: it is written anew", "1 captured\n")
	records := n.Records(t)
	if len(records) != 1 || records[0].Attachment != was.Attachment || records[0].Pod != was.Pod {
		t.Fatalf("%+v\nwas %+v", records, was)
	}
	n.Says(t, 0, "check", "1 attachment as recorded, 0 not\n")
	n.LoseParent(t)
	n.Says(t, 0, "restore", "1 restored")
	if after := state(t, netns); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func TestRefreshMendsATornCheckpointThatTheCacheNames(t *testing.T) {
	for name, part := range map[string]float64{"empty": 0, "in the middle": 0.5, "near the end": 0.95} {
		t.Run(name, func(t *testing.T) {
			n, netns := newNode(t), fresh.Sandbox(t)
			n.cnitool(t, "add", "stock", "web", netns)
			n.Says(t, 0, "capture", "1 captured\n")
			n.expectRewritten(t, netns, n.tear(t, part))
		})
	}
}

// Without a cache, the readable part of the checkpoint names the sandbox. So a DEL by its container ID forgets the
// checkpoint later.
func TestRefreshMendsATornCheckpointThatNoCacheNames(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	if out, err := n.runPlugin("ADD", "hand", netns); err != nil {
		t.Fatal(out, err)
	}
	fresh.Run(t, netns, "ip addr add 10.9.0.7/16 dev eth0")
	n.Says(t, 0, "capture --refresh", "1 refreshed\n")
	n.expectRewritten(t, netns, n.tear(t, 0.6))
	if out, err := n.runPlugin("DEL", "hand", netns); err != nil {
		t.Fatal(out, err)
	}
	if left := n.Records(t); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

// If nothing names the sandbox, the interface is remembered under a made-up name. The torn file stays until somebody
// drops it.
func TestATornCheckpointOfWhichNothingTellsTheSandbox(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	if out, err := n.runPlugin("ADD", "hand", netns); err != nil {
		t.Fatal(out, err)
	}
	n.tear(t, 0)
	n.Says(t, 1, "capture --refresh", "no interface of the sandbox is found for it: nothing can bring that back. relink forget hand --force drops it, with every other checkpoint of this container ID", "1 captured, 1 refused\n")
	n.Says(t, 0, "forget hand --force --yes", "1 freed")
	n.Says(t, 0, "check", "1 attachment as recorded, 0 not\n")
}

// tearAll cuts each checkpoint of the node behind its link, and returns the checkpoints as they were.
func (n *node) tearAll(t *testing.T) []checkpoint.Record {
	t.Helper()
	records := n.Records(t)
	for _, r := range records {
		b, err := os.ReadFile(n.file(r))
		if err != nil {
			t.Fatal(err)
		}
		whole, _, cut := strings.Cut(string(b), `"addresses"`)
		if !cut {
			t.Fatalf("no addresses in %s", b)
		}
		if err := os.WriteFile(n.file(r), []byte(whole), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return records
}

// Two interfaces of a pod have swapped their names, as KubeVirt does. Each torn checkpoint gets its own interface back.
func TestRefreshMendsTornCheckpointsWhoseInterfacesSwappedNames(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	macvlanByHand(t, "lan0", netns, "eth0")
	macvlanByHand(t, "lan0", netns, "net1")
	fresh.Run(t, netns, "ip addr add 10.9.0.7/16 dev eth0; ip addr add 10.9.0.8/16 dev net1")
	n.Says(t, 0, "capture --attached eth0 --attached net1", "2 captured\n")
	was := n.tearAll(t)
	fresh.Run(t, netns, "ip link set eth0 name tmp; ip link set net1 name eth0; ip link set tmp name net1")
	n.Says(t, 0, "capture --refresh --dry-run", "2 to capture\n")
	n.Says(t, 0, "capture --refresh", "2 captured\n")
	now := n.Records(t)
	if len(was) != 2 || len(now) != 2 {
		t.Fatalf("%d checkpoints, there were %d", len(now), len(was))
	}
	for i, r := range now {
		if r.Attachment != was[i].Attachment || r.Interface.Link.Index != was[i].Interface.Link.Index || r.Interface.Link.Name == was[i].Interface.Link.Name {
			t.Errorf("%+v\nwas %+v", r, was[i])
		}
	}
	n.Says(t, 0, "check", "2 attachments as recorded, 0 not\n")
}

// Another namespace has the path of the sandbox now. The cache still has it for the old container.
func TestRefreshMendsNoTornCheckpointByAnotherPodsInterface(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "chained", "web", netns)
	was := n.tearAll(t)
	fresh.Remove(t, netns)
	fresh.At(t, netns)
	macvlanByHand(t, "lan0", netns, "eth0")
	n.Says(t, 1, "capture --refresh", "its name is that of a checkpoint of another namespace", "no interface of the sandbox is found for it", "2 refused\n")
	if _, err := os.Stat(n.file(was[0])); err != nil {
		t.Error(err)
	}
}

// The parents of a torn checkpoint may not be readable. It still tells that its interface was attached.
func TestATornCheckpointWithoutParentsWhoseInterfaceIsGone(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "chained", "web", netns)
	path := n.file(n.Records(t)[0])
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole, _, _ := strings.Cut(string(b), `"parents"`)
	if err := os.WriteFile(path, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh.IP(t, netns, "link del eth0")
	macvlanByHand(t, "lan0", netns, "net1")
	n.Says(t, 1, "capture --refresh", "no interface of the sandbox is found for it", "1 captured, 1 refused\n")
}

// makeNewer makes the checkpoint of a newer relink of the only one.
func (n *node) makeNewer(t *testing.T) (path, newer string) {
	t.Helper()
	path = n.file(n.Records(t)[0])
	b, err := os.ReadFile(path)
	if newer = strings.Replace(string(b), `"version": 1`, `"version": 99`, 1); newer == string(b) {
		newer = strings.Replace(newer, `"version":1`, `"version":99`, 1)
	}
	if err = cmp.Or(err, os.WriteFile(path, []byte(newer), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path, newer
}

// The checkpoint of a newer relink is whole. Nothing overwrites it.
func TestRefreshKeepsTheCheckpointOfANewerRelink(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "chained", "web", netns)
	path, newer := n.makeNewer(t)
	n.Says(t, 1, "capture --refresh", "unknown checkpoint version: 99, this relink reads 1: another relink wrote it", "1 refused\n")
	if now, err := os.ReadFile(path); err != nil || string(now) != newer {
		t.Errorf("it is now %s, %v", now, err)
	}
}
