package gc

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/selection"
	"github.com/relink-cni/relink/test/fresh"
)

// cacheOf makes CNI caches that have the containers.
func cacheOf(t *testing.T, ids ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "results"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		entry := `{"kind":"cniCacheV1","containerId":"` + id + `","ifName":"eth0","networkName":"lan"}`
		if err := os.WriteFile(filepath.Join(dir, "results", "lan-"+id+"-eth0"), []byte(entry), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A person does not wait for a second pass, but for a reservation.
func TestNow(t *testing.T) {
	n := newNode(t)
	stays, goes := fresh.Sandbox(t), fresh.Sandbox(t)
	n.add(t, "stays", stays, web(1))
	n.add(t, "goes", goes, web(2))
	n.sandboxes = n.sandboxes[:1]
	n.reserve(t, web(3))
	n.standing[web(3)] = "gone"
	fresh.Remove(t, goes)
	o := n.options()
	o.Now = true

	answers := n.down
	n.down = errors.New("no answer")
	o.CacheDir = cacheOf(t, "goes")
	expectStates(t, "a cache waits for its DEL", n.pass(t, o), "10.3.0.3 kept", "10.3.0.4 waiting", "checkpoint of goes kept")
	o.CacheDir = filepath.Join(t.TempDir(), "nowhere")
	if r := n.pass(t, o); r.Count(change.Kept) != 2 || r.Complete() || !strings.Contains(strings.Join(r.Problems, "\n"), "there is no CNI cache in") {
		t.Errorf("without a cache: %s, %q", states(r), r.Problems)
	}
	n.down, o.CacheDir = answers, ""

	refused := errors.New("no")
	fresh.IP(t, "", "rule add pref 1140 table 1140 protocol 115")
	o.Confirm = func(r PassReport) error {
		expectStates(t, "asked", r, "10.3.0.3 to free, reserved", "10.3.0.4 waiting", "checkpoint of goes to free")
		if slices.ContainsFunc(r.Outcomes, func(o PassOutcome) bool { return !o.Until.IsZero() }) {
			t.Error("no pass has seen it, and it says when it can be freed")
		}
		if len(r.Host) != 1 || !strings.Contains(r.Host[0], "table 1140") {
			t.Errorf("asked, and the host's part of host access is not named: %q", r.Host)
		}
		return refused
	}
	if _, err := Run(t.Context(), o); !errors.Is(err, refused) {
		t.Error(err)
	}
	if r := n.pass(t, Options{Sources: o.Sources, OnlyInterfaces: true, DryRun: true}); len(r.Host) != 1 {
		t.Errorf("the answer was no, and what is left in the host is %q", r.Host)
	}
	fresh.IP(t, "", "rule del pref 1140 table 1140 protocol 115")
	o.Confirm, o.Select = nil, selection.Selection{Names: []string{"goes"}}
	o.OnlyCheckpoints = true
	expectStates(t, "a checkpoint", n.pass(t, o), "checkpoint of goes freed")
	o.OnlyCheckpoints, o.OnlyLeases = false, true
	expectStates(t, "a lease", n.pass(t, o), "10.3.0.3 freed, reserved")
	o.Select.Names = []string{"nobody"}
	if _, err := Run(t.Context(), o); !errors.Is(err, selection.ErrNothing) {
		t.Error(err)
	}
	if _, err := os.Stat(sightingsFile(n.store)); err == nil {
		t.Error("it has noted sightings")
	}
	expectStates(t, "a real pass", n.pass(t, n.options()), "10.3.0.4 waiting", "10.3.0.3 kept")
}

// A checkpoint that a person names is dropped if its namespace is gone, or by force. Other checkpoints and all leases stay.
func TestForget(t *testing.T) {
	n := newNode(t)
	stays, goes := fresh.Sandbox(t), fresh.Sandbox(t)
	for _, id := range []string{"gone", "half", "empty"} {
		n.add(t, id, goes, web(1))
	}
	n.add(t, "alive", stays, web(2))
	n.add(t, "other", stays, web(3))
	file := func(id string) string { return filepath.Join(n.store.Dir(), id, "eth0.json") }
	for id, size := range map[string]int64{"half": 500, "empty": 0} {
		if err := os.Truncate(file(id), size); err != nil {
			t.Fatal(err)
		}
	}
	fresh.Remove(t, goes)
	o := Options{Forget: true, Select: selection.Selection{Names: []string{"gone", "half", "empty", "alive"}}}
	o.Store, o.AllProcesses = n.store, true
	r := n.pass(t, o)
	for _, out := range r.Outcomes {
		want := map[string]change.State{"gone": Freed, "half": Freed, "empty": change.Kept, "alive": change.Kept}[out.Attachment.ContainerID]
		if out.State != want || want == change.Kept && !strings.HasPrefix(out.Reason, "--force forgets it all the same") {
			t.Errorf("%s is %s, want %s: %s", out.Attachment, out.State, want, out.Reason)
		}
	}
	if len(r.Outcomes) != 4 {
		t.Errorf("%d outcomes:\n%s", len(r.Outcomes), states(r))
	}

	// The pod is attached anew while the person is asked.
	o.Force, o.Select.Names = true, []string{"alive", "empty"}
	record, err := n.store.Load("alive", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	anew, err := identity.Read("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	o.Confirm = func(PassReport) error {
		record.Namespace = anew
		return n.store.Save(record)
	}
	r = n.pass(t, o)
	if r.Count(Freed) != 1 || r.Count(Passed) != 1 {
		t.Errorf("attached anew:\n%s", states(r))
	}
	o.Confirm, o.Select.Names = nil, []string{"alive"}
	expectStates(t, "by force", n.pass(t, o), "checkpoint of alive freed")
	records, _, err := n.store.List()
	if err != nil || len(records) != 1 || records[0].Attachment != (attachment.Key{Network: "lan", ContainerID: "other", IfName: "eth0"}) {
		t.Errorf("%+v, %v", records, err)
	}
	if _, err := n.store.Load("gone", "eth0"); !errors.Is(err, checkpoint.ErrNoCheckpoint) {
		t.Error(err)
	}
	if leases, err := n.leases.List(t.Context()); err != nil || len(leases) != 3 {
		t.Errorf("leases: %+v, %v", leases, err)
	}
}

// Where not all processes are seen, nothing is proven gone.
func TestNowInAContainer(t *testing.T) {
	n, goes := newNode(t), fresh.Sandbox(t)
	n.add(t, "goes", goes, web(1))
	n.sandboxes = nil
	fresh.Remove(t, goes)
	o := n.options()
	o.Now, o.AllProcesses = true, false
	expectStates(t, "in a container", n.pass(t, o), "checkpoint of goes kept", "10.3.0.2 kept")
}

// While a person is asked, the agent frees the same things. Nothing is freed twice.
func TestNowBesideAnotherPass(t *testing.T) {
	n, goes := newNode(t), fresh.Sandbox(t)
	n.add(t, "goes", goes, web(1))
	n.sandboxes = nil
	fresh.Remove(t, goes)
	agent := n.options()
	agent.Grace = time.Nanosecond
	n.pass(t, agent)
	o := n.options()
	o.Now, o.Confirm = true, func(PassReport) error {
		expectStates(t, "the agent", n.pass(t, agent), "10.3.0.2 freed, reserved", "checkpoint of goes freed")
		n.add(t, "next", fresh.Sandbox(t), web(1))
		return nil
	}
	expectStates(t, "the person", n.pass(t, o), "10.3.0.2 changed meanwhile", "checkpoint of goes changed meanwhile")
	if leases, err := n.leases.List(t.Context()); err != nil || len(leases) != 1 || leases[0].Holders[0].ContainerID != "next" {
		t.Errorf("%+v, %v", leases, err)
	}
}
