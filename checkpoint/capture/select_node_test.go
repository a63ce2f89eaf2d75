package capture_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/test/fresh"
)

// macvlanByHand gives the sandbox an interface on the parent. No cache has this interface.
func macvlanByHand(t *testing.T, parent, netns, name string) {
	t.Helper()
	fresh.IP(t, "", "link add link "+parent+" name tmp0 netns "+netns+" type macvlan mode bridge")
	fresh.Run(t, netns, "ip link set tmp0 name "+name+"; ip link set "+name+" up")
}

// An interface that no cache names belongs to the pod whose checkpoint has the same namespace.
func TestAnInterfaceBesideACheckpointIsThePods(t *testing.T) {
	n, web, other := newNode(t), fresh.Sandbox(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "chained", "web", web)
	// The caches are lost, as after a change of runtimes. Only the checkpoint knows the pod.
	if err := os.RemoveAll(filepath.Join(n.cache, "results")); err != nil {
		t.Fatal(err)
	}
	fresh.Run(t, "", "ip link add other0 type veth peer name other1; ip link set other0 up; ip link set other1 up")
	t.Cleanup(func() { fresh.IP(t, "", "link del other0") })
	macvlanByHand(t, "other0", web, "net1")
	macvlanByHand(t, "lan0", other, "eth0")
	for _, by := range []string{"default/web", "-n default"} {
		out := n.Says(t, 1, "check "+by, "default/web "+web+" net1: it has no checkpoint")
		if strings.Contains(out, other) {
			t.Errorf("check %s reports a sandbox that nobody knows:\n%s", by, out)
		}
	}
	n.Says(t, 0, "capture default/web", "net1", "1 captured, 1 kept\n")
	n.Says(t, 0, "check default/web", "2 attachments as recorded, 0 not\n")
	for _, r := range n.Records(t) {
		if r.Pod.Name != "web" || !strings.HasPrefix(r.Attachment.ContainerID, "cnitool-") {
			t.Errorf("%+v", r)
		}
	}
}

// No checkpoint can have the name of the lock file.
func TestANameThatCannotBeRemembered(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	macvlanByHand(t, "lan0", netns, ".lock")
	const why = `none can be written: interface name ".lock": a name that begins with a dot cannot be remembered`
	n.Says(t, 1, "check", netns+" .lock: it has no checkpoint: "+why)
	n.Says(t, 1, "capture", why, "1 refused\n")
}

// The interface of a newer relink's checkpoint exists. The refusal is reported once.
func TestANewerCheckpointIsRefusedOnce(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "chained", "web", netns)
	n.makeNewer(t)
	for _, cache := range []string{"named by the cache", "named by nothing else"} {
		n.Says(t, 1, "capture --refresh", "default/web", "its checkpoint cannot be read", "\n1 refused\n")
		if err := os.RemoveAll(filepath.Join(n.cache, "results")); err != nil {
			t.Fatalf("%s: %v", cache, err)
		}
	}
}

// A problem of a sandbox that is not selected fails no check and no capture.
func TestAStrangersProblemIsNotReported(t *testing.T) {
	n, web, other := newNode(t), fresh.Sandbox(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "chained", "web", web)
	macvlanByHand(t, "lan0", other, "bad0")
	fresh.Run(t, other, `ip link set bad0 down name "$(printf 'n\033[2J')"; ip link set "$(printf 'n\033[2J')" up`)
	const problem = `n\u001b[2J can't be remembered`
	n.Says(t, 1, "check", problem)
	n.Says(t, 1, "capture", problem, "1 kept, 1 failed\n")
	for _, by := range []string{"default/web", "-n default", "--network chained", "--parent lan0"} {
		n.Says(t, 0, "check "+by, "1 attachment as recorded, 0 not\n")
		n.Says(t, 0, "capture "+by, "1 kept\n")
	}
}

// A pod's own problem is reported with the pod.
func TestAPodsProblemIsReportedWithIt(t *testing.T) {
	n, web := newNode(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "chained", "web", web)
	macvlanByHand(t, "lan0", web, "bad0")
	fresh.Run(t, web, `ip link set bad0 down name "$(printf 'n\033[2J')"; ip link set "$(printf 'n\033[2J')" up`)
	const problem = `n\u001b[2J can't be remembered`
	n.Says(t, 1, "check default/web", problem)
	n.Says(t, 1, "capture -n default", problem, "1 kept, 1 failed\n")
}

// An interface that is gone by the second look is ignored: its pod was being attached or detached.
func TestWhatIsGoneByTheSecondLookIsNothing(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	opts := capture.Options{Store: n.Store, CacheDir: n.cache}
	times := 0
	then := func(do func()) context.Context {
		return fresh.Between{Context: t.Context(), Do: func() { times++; do() }}
	}
	goes := func() { fresh.IP(t, netns, "link del eth0") }
	macvlanByHand(t, "lan0", netns, "eth0")
	found, err := capture.FindUnrecorded(t.Context(), opts)
	if err != nil || len(found) != 1 || found[0].State != capture.ToCapture {
		t.Fatalf("%v, %v, want the interface that stays", found, err)
	}
	if found, err := capture.FindUnrecorded(then(goes), opts); err != nil || len(found) > 0 {
		t.Errorf("%v, %v, want nothing", found, err)
	}

	// A plugin at work leaves its link down for a while.
	macvlanByHand(t, "lan0", netns, "eth0")
	fresh.IP(t, netns, "link set eth0 down")
	if report, err := capture.Run(then(goes), opts); err != nil || len(report.Outcomes) > 0 || !report.Complete() {
		t.Errorf("%+v, %v, want nothing", report, err)
	}

	// A DEL forgets the checkpoint after a capture has read it.
	n.cnitool(t, "add", "chained", "web", netns)
	fresh.IP(t, netns, "link del eth0")
	path := n.file(n.Records(t)[0])
	opts.Refresh = true
	if report, err := capture.Run(then(func() { _ = os.Remove(path) }), opts); err != nil || len(report.Outcomes) > 0 || !report.Complete() {
		t.Errorf("%+v, %v, want nothing", report, err)
	}
	if times != 3 {
		t.Errorf("%d second looks, want 3", times)
	}
}
