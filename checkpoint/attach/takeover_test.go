package attach_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// statefulSet is a node where the sandboxes of one pod, web-0, come and go. The pod keeps its address.
type statefulSet struct {
	*node
	ranges string
	env    []string
	// results are the outputs of the ADDs, by container ID.
	results map[string]string
}

// eachSet runs the test once for each way to call relink-ipam.
func eachSet(t *testing.T, ranges string, test func(t *testing.T, s *statefulSet, inProcess bool)) {
	for name, env := range map[string][]string{"in process": nil, "executed": {"RELINK_IPAM_EXEC=1"}} {
		t.Run(name, func(t *testing.T) {
			s := &statefulSet{node: newNode(t), ranges: ranges, env: env, results: map[string]string{}}
			// The store is small, so that it is soon full.
			dir := s.Store.Dir()
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			test(t, s, env == nil)
		})
	}
}

// callPlugin calls the plugin for a sandbox of the pod, and returns the code and the text of its error.
func (s *statefulSet) callPlugin(t *testing.T, command, pod, id, netns, more string) (code int, msg string) {
	t.Helper()
	cmd := s.plugin(command, id, netns, "")
	cmd.Env = append(cmd.Env, s.env...)
	cmd.Env = append(cmd.Env, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME="+pod)
	if command == "CHECK" {
		more += `, "prevResult": ` + s.results[id]
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "lan", "type": "relink-macvlan", "master": "lan0", "checkpointDir": %q,
		"ipam": {"type": "relink-ipam", "dataDir": %q, "sticky": "pod", "quarantine": "0s", "ranges": %s}%s}`, s.Store.Dir(), s.leaseDir(), s.ranges, more))
	out, err := cmd.Output()
	if err == nil {
		if command == "ADD" {
			s.results[id] = string(out)
		}
		return 0, ""
	}
	return parseError(t, out)
}

func (s *statefulSet) leaseDir() string { return filepath.Join(s.Dir, "ipam") }

// must is do for a call that has to succeed.
func (s *statefulSet) must(t *testing.T, command, pod, id, netns string) {
	t.Helper()
	if code, msg := s.callPlugin(t, command, pod, id, netns, ""); code != 0 {
		t.Fatalf("%s of %s: code %d: %s", command, id, code, msg)
	}
}

// leases returns one line for each lease: who holds it, or its other state.
func (s *statefulSet) leases(t *testing.T) []string {
	t.Helper()
	store, err := lease.Open(s.leaseDir(), "lan")
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	all, err := store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range all {
		line := fmt.Sprintf("%s %s %s", l.Address, l.Owner.Name, l.State)
		for _, h := range l.Holders {
			line += " " + h.ContainerID
		}
		lines = append(lines, line)
	}
	return lines
}

func (s *statefulSet) has(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.leases(t)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// history returns what happened to the address, and to which of its sandboxes.
func (s *statefulSet) history(t *testing.T, address string) []string {
	t.Helper()
	store, err := lease.Open(s.leaseDir(), "lan")
	if err != nil {
		t.Fatal(err)
	}
	events, err := store.History(t.Context(), netip.MustParseAddr(address))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range events {
		all = append(all, fmt.Sprintf("%s %s: %s", e.ContainerID, e.Type, e.Reason))
	}
	return all
}

// fill leaves no room for a checkpoint. empty makes room again.
func (s *statefulSet) fill(t *testing.T) (empty func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(s.Store.Dir(), ".filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	if err = errors.Join(err, f.Close()); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return func() { _ = os.Remove(f.Name()) }
}

const one = `[[{"subnet": "10.9.0.0/24"}]]`

// The new sandbox's ADD fails after it has taken over the address. Then the earlier sandbox has the address as before,
// and a DEL of the new one changes nothing. The earlier sandbox also keeps the address while a new ADD has succeeded,
// because a later plugin in the list can still fail.
func TestAddThatFailsLateLeavesTheSandboxBeforeItsAddress(t *testing.T) {
	eachSet(t, one, func(t *testing.T, s *statefulSet, _ bool) {
		c1, c2, c3, other := fresh.Sandbox(t), fresh.Sandbox(t), fresh.Sandbox(t), fresh.Sandbox(t)
		s.must(t, "ADD", "web-0", "c1", c1)
		empty := s.fill(t)
		code, msg := s.callPlugin(t, "ADD", "web-0", "c2", c2, "")
		expectCode(t, "ADD that can't be remembered", code, msg, 5, "no space left on device")
		if diff := cmp.Diff([]string{
			"c1 given: next in turn", "c2 given: taken over from the owner's sandbox before", "c2 given up: released",
		}, s.history(t, "10.9.0.2")); diff != "" {
			t.Errorf("it did not fail late (-want +got):\n%s", diff)
		}
		empty()
		const held = "10.9.0.2 web-0 held c1"
		s.has(t, "after the ADD that failed", held)
		s.must(t, "CHECK", "web-0", "c1", c1)
		s.must(t, "DEL", "web-0", "c2", c2)
		s.has(t, "after its DEL", held)
		s.must(t, "CHECK", "web-0", "c1", c1)
		s.must(t, "ADD", "other", "other", other)
		s.has(t, "with another pod", held, "10.9.0.3 other held other")

		s.must(t, "ADD", "web-0", "c3", c3)
		s.has(t, "after the ADD that succeeded", "10.9.0.2 web-0 held c1 c3", "10.9.0.3 other held other")
		s.must(t, "DEL", "web-0", "c3", c3)
		s.has(t, "after a later plugin failed", held, "10.9.0.3 other held other")
		s.must(t, "CHECK", "web-0", "c1", c1)
		s.must(t, "ADD", "web-0", "c3", c3)
		s.must(t, "CHECK", "web-0", "c3", c3)
		for range 2 {
			s.must(t, "DEL", "web-0", "c1", c1)
			s.must(t, "DEL", "web-0", "c2", c2)
			s.has(t, "after the late DELs", "10.9.0.2 web-0 held c3", "10.9.0.3 other held other")
		}
		s.must(t, "CHECK", "web-0", "c3", c3)
		s.must(t, "DEL", "web-0", "c3", c3)
		s.has(t, "in the end", "10.9.0.2 web-0 reserved", "10.9.0.3 other held other")
	})
}

// The kernel refuses an IPv6 address that the earlier sandbox still answers for. The runtime tries again and again
// until that sandbox is gone.
func TestAddIsRefusedUntilTheSandboxBeforeIsGone(t *testing.T) {
	eachSet(t, `[[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]]`, func(t *testing.T, s *statefulSet, _ bool) {
		c1, next := fresh.Sandbox(t), ""
		s.must(t, "ADD", "web-0", "c1", c1)
		for _, id := range []string{"c2", "c3"} {
			next = fresh.Sandbox(t)
			code, msg := s.callPlugin(t, "ADD", "web-0", id, next, "")
			expectCode(t, "ADD of "+id, code, msg, 11, "another host on the network has its IPv6 address")
			s.must(t, "DEL", "web-0", id, next)
			s.has(t, "after "+id, "10.9.0.2 web-0 held c1", "fd00:9::2 web-0 held c1")
			s.must(t, "CHECK", "web-0", "c1", c1)
		}
		s.must(t, "DEL", "web-0", "c1", c1)
		s.has(t, "when the sandbox before is gone", "10.9.0.2 web-0 reserved", "fd00:9::2 web-0 reserved")
		s.must(t, "ADD", "web-0", "c4", next)
		s.must(t, "CHECK", "web-0", "c4", next)
		s.has(t, "in the end", "10.9.0.2 web-0 held c4", "fd00:9::2 web-0 held c4")
	})
}

// CRI-O sends null for a network without pods.
func TestGCTakesNullForNoneValid(t *testing.T) {
	eachSet(t, one, func(t *testing.T, s *statefulSet, _ bool) {
		netns := fresh.Sandbox(t)
		s.must(t, "ADD", "web-0", "c1", netns)
		testnode.EndSandbox(t, netns)
		code, msg := s.callPlugin(t, "GC", "", "", "", "")
		expectCode(t, "GC without a list", code, msg, 7, `invalid "cni.dev/valid-attachments": missing: must list the valid attachments; without the list every address is kept`)
		code, msg = s.callPlugin(t, "GC", "", "", "", `, "cni.dev/valid-attachments": "none"`)
		expectCode(t, "GC with a list that is none", code, msg, 7, `invalid "cni.dev/valid-attachments": "none": must be a list of attachments: everything is kept`)
		if _, err := s.Store.Load("c1", "eth0"); err != nil {
			t.Errorf("the checkpoint is forgotten: %v", err)
		}
		s.has(t, "after GCs that failed", "10.9.0.2 web-0 held c1")
		s.awaitCheckpoints(t, func() {
			code, msg = s.callPlugin(t, "GC", "", "", "", `, "cni.dev/valid-attachments": null`)
			expectCode(t, "GC with null", code, msg, 0, "")
		})
		s.has(t, "after GC with null", "10.9.0.2 web-0 reserved")
	})
}
