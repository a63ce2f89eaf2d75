package forget_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/forget"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

func TestMain(m *testing.M) { testnode.MainAlone(m) }

// saveCheckpoint writes a checkpoint of the container in the namespace at the path.
func saveCheckpoint(t *testing.T, n *testnode.Node, id, ifName, netns string) checkpoint.Record {
	t.Helper()
	namespace, err := identity.Read(netns)
	if err != nil {
		t.Fatal(err)
	}
	r := checkpoint.Record{
		Attachment: attachment.Key{Network: "lan", ContainerID: id, IfName: ifName}, Pod: attachment.Pod{Namespace: "shop", Name: id},
		Namespace: namespace,
		Interface: netstate.Interface{
			Link:    netstate.Link{Kind: netstate.KindMacvlan, Name: ifName, MAC: "02:00:00:00:00:05", MTU: 1500, Macvlan: &netstate.Macvlan{Mode: "bridge"}},
			Parents: []netstate.Device{{Kind: netstate.KindNIC, Name: "lan0", MTU: 1500}},
		},
		CNI:    checkpoint.CNI{Config: []byte(`{"ipam": {"type": "relink-ipam"}}`), Result: []byte("{}")},
		Writer: "test", CapturedAt: time.Now().UTC(),
	}
	if err := n.Store.Save(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// sandboxAt makes a namespace that a test can remove.
func sandboxAt(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ns")
	fresh.At(t, path)
	return path
}

func file(n *testnode.Node, id, ifName string) string {
	return filepath.Join(n.Store.Dir(), id, ifName+".json")
}

// truncate cuts the checkpoint to size bytes.
func truncate(t *testing.T, n *testnode.Node, id, ifName string, size int64) {
	t.Helper()
	if err := os.Truncate(file(n, id, ifName), size); err != nil {
		t.Fatal(err)
	}
}

// listCheckpoints returns the existing checkpoints in short form.
func listCheckpoints(t *testing.T, n *testnode.Node) []string {
	t.Helper()
	files, err := filepath.Glob(file(n, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		id, name := filepath.Split(strings.TrimSuffix(f, ".json"))
		files[i] = filepath.Base(id) + "/" + name
	}
	return files
}

func expectCheckpoints(t *testing.T, n *testnode.Node, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, listCheckpoints(t, n)); diff != "" {
		t.Errorf("checkpoints (-want +there):\n%s", diff)
	}
}

// awaitStale returns once nothing on this machine has the namespace. For a moment, another process of the tests can have
// its inode.
func awaitStale(t *testing.T, opts forget.Options, count int) *forget.Plan {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		plan, err := forget.NewPlan(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Report().Count(forget.ToForget) == count {
			return plan
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", plan.Report())
		}
	}
}

// Only a sandbox that is proven gone is forgotten. A path that vanished is no proof.
func TestForgetStale(t *testing.T) {
	n := testnode.New(t)
	goes, stays, kept := sandboxAt(t), sandboxAt(t), sandboxAt(t)
	saveCheckpoint(t, n, "goes", "eth0", goes)
	saveCheckpoint(t, n, "goes", "net1", goes)
	saveCheckpoint(t, n, "stays", "eth0", stays)
	saveCheckpoint(t, n, "kept", "eth0", kept)
	inside := exec.Command("nsenter", "--net="+kept, "sleep", "600")
	if err := inside.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inside.Process.Kill(); _ = inside.Wait() })
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if device, inode, _ := identityOf(t, inside.Process.Pid); sameFile(t, kept, device, inode) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not enter the namespace")
		}
	}
	fresh.Remove(t, goes)
	fresh.Remove(t, kept)
	opts := forget.Options{Store: n.Store, Stale: true, AllProcesses: true}
	plan := awaitStale(t, opts, 2)
	expectCheckpoints(t, n, "goes/eth0", "goes/net1", "kept/eth0", "stays/eth0")
	report := plan.Run(t.Context())
	if !report.Complete() || report.Count(forget.Forgotten) != 2 || report.Alive != 2 || !report.LeasesMayRemain() {
		t.Errorf("%+v", report)
	}
	for _, o := range report.Checkpoints {
		if o.Reason != "its sandbox is gone: no mount, process or socket of the node keeps it" {
			t.Errorf("%s: %s", o.Attachment, o.Reason)
		}
	}
	expectCheckpoints(t, n, "kept/eth0", "stays/eth0")
	if dirs, err := os.ReadDir(n.Store.Dir()); err != nil || len(dirs) != 2 {
		t.Errorf("directories: %v, %v", dirs, err)
	}
}

func identityOf(t *testing.T, pid int) (device, inode uint64, ok bool) {
	t.Helper()
	id, err := identity.Read(fmt.Sprintf("/proc/%d/ns/net", pid))
	return id.Device, id.Inode, err == nil
}

func sameFile(t *testing.T, path string, device, inode uint64) bool {
	t.Helper()
	id, err := identity.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return id.Device == device && id.Inode == inode
}

// A checkpoint whose sandbox cannot be looked up is kept and reported.
func TestForgetKeepsWhatIsNotKnown(t *testing.T) {
	n, netns := testnode.New(t), sandboxAt(t)
	saveCheckpoint(t, n, "c1", "eth0", netns)
	fresh.Remove(t, netns)
	plan, err := forget.NewPlan(t.Context(), forget.Options{Store: n.Store, Stale: true}) // AllProcesses is not set, so not all processes are seen.
	if err != nil {
		t.Fatal(err)
	}
	report := plan.Run(t.Context())
	if report.Complete() || report.Count(forget.Kept) != 1 || !strings.Contains(report.Checkpoints[0].Reason, "or in the host's PID namespace. To forget it all the same: relink forget c1 --force") {
		t.Errorf("%+v", report)
	}
	expectCheckpoints(t, n, "c1/eth0")
}

// The same container was attached anew between the decision and the deletion.
func TestForgetKeepsWhatWasAttachedAnew(t *testing.T) {
	n, netns, anew := testnode.New(t), sandboxAt(t), sandboxAt(t)
	saveCheckpoint(t, n, "c1", "eth0", netns)
	saveCheckpoint(t, n, "c2", "eth0", netns)
	truncate(t, n, "c2", "eth0", 500)
	fresh.Remove(t, netns)
	plan := awaitStale(t, forget.Options{Store: n.Store, Stale: true, AllProcesses: true}, 2)
	saveCheckpoint(t, n, "c1", "eth0", anew)
	saveCheckpoint(t, n, "c2", "eth0", anew)
	report := plan.Run(t.Context())
	if report.Count(forget.Kept) != 2 || report.LeasesMayRemain() {
		t.Errorf("%+v", report)
	}
	for _, o := range report.Checkpoints {
		if o.Reason != "it was written anew meanwhile" {
			t.Errorf("%s: %s", o.Attachment, o.Reason)
		}
	}
	expectCheckpoints(t, n, "c1/eth0", "c2/eth0")
}

// A torn checkpoint goes if its namespace is known and gone. Its readable part can name the namespace, and so can
// another checkpoint of its container.
func TestForgetTorn(t *testing.T) {
	n, gone, alive := testnode.New(t), sandboxAt(t), sandboxAt(t)
	for _, id := range []string{"half", "empty", "beside"} {
		saveCheckpoint(t, n, id, "eth0", gone)
	}
	saveCheckpoint(t, n, "beside", "net1", gone)
	saveCheckpoint(t, n, "living", "eth0", alive)
	for id, size := range map[string]int64{"half": 500, "empty": 0, "beside": 20, "living": 500} {
		truncate(t, n, id, "eth0", size)
	}
	fresh.Remove(t, gone)
	opts := forget.Options{Store: n.Store, Stale: true, AllProcesses: true}
	report := awaitStale(t, opts, 3).Run(t.Context())
	if report.Count(forget.Forgotten) != 3 || report.Count(forget.Kept) != 1 || report.Alive != 1 || report.Complete() {
		t.Errorf("%+v", report)
	}
	expectCheckpoints(t, n, "empty/eth0", "living/eth0")

	opts = forget.Options{Store: n.Store, Select: selection.Selection{Names: []string{"empty", "living"}}, AllProcesses: true}
	plan, err := forget.NewPlan(t.Context(), opts)
	if err != nil || plan.Report().Count(forget.Kept) != 2 {
		t.Fatalf("%+v, %v", plan, err)
	}
	opts.Force = true
	if plan, err = forget.NewPlan(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	if report := plan.Run(t.Context()); report.Count(forget.Forgotten) != 2 || !report.Complete() {
		t.Errorf("%+v", report)
	}
	expectCheckpoints(t, n)
}

// A checkpoint that is not selected still tells whether the sandbox of its container is there.
func TestForgetTornAsksAllCheckpointsOfItsContainer(t *testing.T) {
	n, gone, alive := testnode.New(t), sandboxAt(t), sandboxAt(t)
	saveCheckpoint(t, n, "c1", "eth0", gone)
	other := saveCheckpoint(t, n, "c1", "net1", alive)
	saveCheckpoint(t, n, "c1", "net2", alive)
	other.Attachment.Network = "san"
	if err := n.Store.Save(other); err != nil {
		t.Fatal(err)
	}
	truncate(t, n, "c1", "net2", 0)
	fresh.Remove(t, gone)
	opts := forget.Options{Store: n.Store, Stale: true, AllProcesses: true, Select: selection.Selection{Network: "lan"}}
	report := awaitStale(t, opts, 1).Run(t.Context())
	if report.Count(forget.Forgotten) != 1 || report.Alive != 1 || !report.Complete() {
		t.Errorf("%+v", report)
	}
	expectCheckpoints(t, n, "c1/net1", "c1/net2")

	opts = forget.Options{Store: n.Store, AllProcesses: true, Select: selection.Selection{Names: []string{"c1"}}}
	plan, err := forget.NewPlan(t.Context(), opts)
	if err != nil || len(plan.Report().Checkpoints) != 2 {
		t.Fatalf("%+v, %v", plan, err)
	}
	torn := plan.Report().Checkpoints[1]
	if want := "another checkpoint of its container tells the namespace: it is at " + alive; torn.State != forget.Kept || !strings.Contains(torn.Reason, want) {
		t.Errorf("%+v", torn)
	}
}

func TestForgetNeedsToKnowWhat(t *testing.T) {
	n := testnode.New(t)
	for _, opts := range []forget.Options{{}, {Stale: true, Force: true}} {
		opts.Store = n.Store
		if _, err := forget.NewPlan(t.Context(), opts); !errors.Is(err, forget.ErrUsage) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

// The command asks only on a terminal.
func TestForgetAsks(t *testing.T) {
	n, netns := testnode.New(t), sandboxAt(t)
	saveCheckpoint(t, n, "living", "eth0", netns)
	n.Says(t, 2, "forget", "relink forget needs the names of pods or sandboxes, or --stale")
	n.Says(t, 0, "forget --stale living", "1 of living sandboxes\n")
	n.Says(t, 2, "forget nobody", "nobody")
	n.Says(t, 0, "forget --stale --yes", "1 of living sandboxes\n")
	n.Says(t, 1, "forget shop/living --yes", "its sandbox is alive: it is at "+netns, "1 kept\n")
	n.Says(t, 0, "forget liv --force --dry-run", "to forget", "relink restore will not bring this interface back", "1 to forget\n")
	n.Says(t, 2, "forget living --force", "needs --yes where nobody can be asked")
	n.Says(t, 2, "forget living --force -o json", "needs --yes")
	expectCheckpoints(t, n, "living/eth0")

	asked := func(answer string) string {
		t.Helper()
		line := fmt.Sprintf("printf '%s\\n' | script -qec '%s' /dev/null", answer, strings.Join(n.Command("forget", "living", "--force").Args, " "))
		out, _ := exec.Command("sh", "-c", line).CombinedOutput()
		return string(out)
	}
	if out := asked("n"); !strings.Contains(out, "Forget 1 checkpoint? [y/N]") || !strings.Contains(out, "nothing is forgotten") {
		t.Errorf("it says:\n%s", out)
	}
	expectCheckpoints(t, n, "living/eth0")
	if out := asked("y"); !strings.Contains(out, "1 forgotten") || !strings.Contains(out, "relink ipam reclaim") {
		t.Errorf("it says:\n%s", out)
	}
	expectCheckpoints(t, n)

	saveCheckpoint(t, n, "c2", "eth0", netns)
	if out := n.Says(t, 0, "forget c2 --force --yes -o json"); !strings.Contains(out, `"state": "forgotten"`) || !strings.Contains(out, `"sandbox": "alive"`) {
		t.Error(out)
	}
	expectCheckpoints(t, n)
}

// A command that has to wait says for which lock, and who holds it.
func TestTheCommandSaysThatItWaits(t *testing.T) {
	n, netns := testnode.New(t), sandboxAt(t)
	saveCheckpoint(t, n, "c1", "eth0", netns)
	lock := filepath.Join(n.Store.Dir(), "c1", ".lock")
	holder := exec.Command("flock", "--no-fork", lock, "sh", "-c", "echo; exec sleep 600")
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	var said testnode.Log
	cmd := n.Command("forget", "c1", "--force", "--yes")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("relink: waiting for the lock of shop/c1 (held by sleep 600, process %d)\n", holder.Process.Pid)
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(said.String(), want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("it does not say %q", want)
			break
		}
	}
	_ = holder.Process.Kill()
	if err := cmd.Wait(); err != nil || !strings.Contains(said.String(), "1 forgotten\n") {
		t.Errorf("%v\n%s", err, said.String())
	}
}

// A checkpoint that cannot be read may be of any namespace. --force with a limit drops it only if something shows that
// it is within the limit.
func TestForcedForgetGuessesNothing(t *testing.T) {
	n, netns := testnode.New(t), fresh.Sandbox(t)
	for _, id := range []string{"whole", "empty", "cut"} {
		saveCheckpoint(t, n, id, "eth0", netns)
	}
	truncate(t, n, "empty", "eth0", 0)
	info, err := os.Stat(file(n, "cut", "eth0"))
	if err != nil {
		t.Fatal(err)
	}
	truncate(t, n, "cut", "eth0", info.Size()-2)
	n.Says(t, 1, "forget -n shop --force --yes", "2 forgotten, 1 kept", "relink forget empty --force")
	expectCheckpoints(t, n, "empty/eth0")
	n.Says(t, 0, "forget empty --force --yes", "1 forgotten")
}
