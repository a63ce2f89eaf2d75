package attach_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/test/fresh"
)

func TestAddRecordsWhatItReports(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	var result struct {
		Interfaces []struct {
			Name, Mac, Sandbox string
			Mtu                int
		}
		IPs []struct{ Address string }
	}
	if err := json.Unmarshal([]byte(n.mustCall(t, "ADD", "c1", netns)), &result); err != nil {
		t.Fatal(err)
	}
	r, err := n.Store.Load("c1", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	link, reported := r.Interface.Link, result.Interfaces[0]
	if reported.Name != "eth0" || reported.Mac != link.MAC || reported.Mtu != link.MTU || reported.Sandbox != netns {
		t.Errorf("reported %+v, recorded %+v", reported, link)
	}
	if len(r.Interface.Addresses) != 1 || result.IPs[0].Address != r.Interface.Addresses[0].String() {
		t.Errorf("reported %+v, recorded %+v", result.IPs, r.Interface.Addresses)
	}
	if r.Pod.Namespace != "default" || r.Pod.Name != "c1" || r.Writer != "relink-macvlan" || r.Interface.Parents[0].Name != "lan0" {
		t.Errorf("recorded %+v", r)
	}
	n.mustCall(t, "DEL", "c1", netns)
	n.expectNothing(t, netns)
}

// Each version of the specification gets a result in its own form.
func TestAddSpeaksEveryVersion(t *testing.T) {
	n := newNode(t)
	for version, key := range map[string]string{
		"0.1.0": "ip4", "0.2.0": "ip4", "0.3.0": "ips", "0.3.1": "ips", "0.4.0": "ips", "1.0.0": "ips", "1.1.0": "ips",
	} {
		netns := fresh.Sandbox(t)
		out, err := n.plugin("ADD", "c1", netns, fmt.Sprintf(`, "cniVersion": %q`, version)).Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", version, err, out)
		}
		var result map[string]any
		if err := json.Unmarshal(out, &result); err != nil {
			t.Fatalf("%s: %v\n%s", version, err, out)
		}
		if result["cniVersion"] != version || result[key] == nil {
			t.Errorf("%s: %s", version, out)
		}
		n.mustCall(t, "DEL", "c1", netns)
		n.expectNothing(t, netns)
	}
}

// Of several ADDs of one attachment at once, one succeeds. The others take nothing away from it.
func TestOneOfManyAddsOfAnAttachmentWins(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	const count = 8
	outs := make([]string, count)
	errs := make([]error, count)
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() { outs[i], errs[i] = n.call("ADD", "c1", netns) })
	}
	wg.Wait()
	won := 0
	for i := range count {
		switch {
		case errs[i] == nil:
			won++
		case !strings.Contains(outs[i], "the sandbox has an interface of that name already"):
			t.Errorf("lost for another reason: %s", outs[i])
		}
	}
	if won != 1 || len(n.leasedAddresses(t)) != 1 {
		t.Errorf("%d won, addresses %v", won, n.leasedAddresses(t))
	}
	if _, err := n.Store.Load("c1", "eth0"); err != nil {
		t.Error(err)
	}
	n.mustCall(t, "DEL", "c1", netns)
	n.expectNothing(t, netns)
}

// An ADD can be killed at any moment. The DEL after it removes all that it left, and the next ADD works. A kill of the plugin
// does not end its IPAM plugin: that could take its address after a DEL that is faster, so the DEL comes when it has ended.
func TestAddKilledAtAnyMoment(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	finished := 0
	const kills = 40
	for range kills {
		cmd := n.plugin("ADD", "c1", netns, "")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(14 * time.Millisecond))
		_ = cmd.Process.Kill()
		if cmd.Wait() == nil {
			finished++
		}
		groupEnds(t, cmd.Process.Pid)
		n.mustCall(t, "DEL", "c1", netns)
		n.expectNothing(t, netns)
	}
	t.Logf("%d kills, %d came too late", kills, finished)
	n.mustCall(t, "ADD", "c1", netns)
}

// groupEnds waits for the end of all processes of a group. Those that a kill has made orphans are this process's children: it is
// their subreaper.
func groupEnds(t *testing.T, group int) {
	t.Helper()
	for {
		switch _, err := unix.Wait4(-group, nil, 0, nil); {
		case errors.Is(err, unix.ECHILD):
			return
		case err != nil && !errors.Is(err, unix.EINTR):
			t.Fatal(err)
		}
	}
}

// Restores run one after the other. Meanwhile sandboxes are attached, lose their parent and are detached. No restore
// brings back what a DEL has removed.
func TestRestoreNeverBringsBackWhatWasDetached(t *testing.T) {
	n := newNode(t)
	stop := make(chan struct{})
	var restores sync.WaitGroup
	for range 2 {
		restores.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = n.restore()
				}
			}
		})
	}
	var pods sync.WaitGroup
	for i := range 4 {
		netns := fresh.Sandbox(t)
		id := fmt.Sprintf("c%d", i)
		pods.Go(func() {
			for range 6 {
				if out, err := n.call("ADD", id, netns); err != nil {
					t.Errorf("ADD: %v\n%s", err, out)
				}
				fresh.IP(t, netns, "link del eth0") // As if its parent were lost.
				if out, err := n.call("DEL", id, netns); err != nil {
					t.Errorf("DEL: %v\n%s", err, out)
				}
				if out := fresh.IP(t, netns, "-o link"); strings.Contains(out, "eth0") {
					t.Errorf("brought back: %s", out)
				}
			}
		})
	}
	pods.Wait()
	close(stop)
	restores.Wait()
	if held := n.leasedAddresses(t); len(held) > 0 {
		t.Errorf("addresses are left: %v", held)
	}
}

// Two restores at the same time do each thing once, and both succeed.
func TestTwoRestoresAtOnce(t *testing.T) {
	n := newNode(t)
	const count = 20
	var paths []string
	for i := range count {
		netns := fresh.Sandbox(t)
		paths = append(paths, netns)
		n.mustCall(t, "ADD", fmt.Sprintf("c%d", i), netns)
	}
	n.LoseParent(t)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if out, err := n.restore(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	for _, netns := range paths {
		if out := fresh.IP(t, netns, "-o addr show dev eth0 scope global"); !strings.Contains(out, "10.9.") {
			t.Errorf("%s: %s", netns, out)
		}
	}
	if out, err := n.restore(); err != nil || !strings.Contains(out, fmt.Sprintf("%d as recorded", count)) {
		t.Errorf("%v\n%s", err, out)
	}
}

// A restore can be killed at any moment. The next one finishes its work.
func TestRestoreKilledAtAnyMoment(t *testing.T) {
	n := newNode(t)
	const count = 10
	for i := range count {
		n.mustCall(t, "ADD", fmt.Sprintf("c%d", i), fresh.Sandbox(t))
	}
	for range 15 {
		n.LoseParent(t)
		cmd := n.restoreCommand()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(30 * time.Millisecond))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if out, err := n.restore(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if out, err := n.restore(); err != nil || !strings.Contains(out, fmt.Sprintf("%d as recorded", count)) {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// A DEL of an attachment that relink does not remember removes what a killed ADD may have left, and nothing else.
func TestDelOfWhatIsNotRememberedIsCareful(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)

	// This interface is another plugin's. An ADD fails because of it.
	fresh.IP(t, netns, "link add eth0 type veth peer name eth1")
	n.mustCall(t, "DEL", "c1", netns)
	if out := fresh.IP(t, netns, "-o link"); !strings.Contains(out, "eth0") {
		t.Errorf("another plugin's interface is gone: %s", out)
	}
	fresh.IP(t, netns, "link del eth0")

	// This interface belongs to a later sandbox, whose namespace is at the same path.
	n.mustCall(t, "ADD", "new", netns)
	n.mustCall(t, "DEL", "old", netns)
	if out := fresh.IP(t, netns, "-o link"); !strings.Contains(out, "eth0") {
		t.Errorf("another sandbox's interface is gone: %s", out)
	}
	n.mustCall(t, "DEL", "new", netns)

	// This interface is the host's.
	fresh.IP(t, "", "link add link lan0 name eth0 type macvlan mode bridge")
	t.Cleanup(func() { fresh.IP(t, "", "link del eth0") })
	_, _ = n.call("DEL", "c1", "/proc/self/ns/net")
	fresh.IP(t, "", "link show eth0")

	// This is left after a kill.
	fresh.IP(t, "", "link add link lan0 name tmp0 netns "+netns+" type macvlan mode bridge")
	fresh.IP(t, netns, "link set tmp0 name eth0")
	n.mustCall(t, "DEL", "c1", netns)
	n.expectNothing(t, netns)
}

// A DEL also deletes an interface that was renamed in the pod.
func TestDelOfARenamedInterface(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.mustCall(t, "ADD", "c1", netns)
	fresh.Run(t, netns, "ip link set eth0 down name web0; ip link add eth0 type veth peer name peer")
	n.mustCall(t, "DEL", "c1", netns)
	if out := fresh.IP(t, netns, "-o link"); strings.Contains(out, "web0") || !strings.Contains(out, "eth0") {
		t.Errorf("left:\n%s", out)
	}
	fresh.IP(t, netns, "link del eth0")
	n.expectNothing(t, netns)
}

// A process that holds the lock of the parents or of the sandbox is stopped. An ADD waits for a while, names the
// process, and leaves nothing behind.
func TestAddDoesNotWaitForEver(t *testing.T) {
	first := newNode(t)
	for name, file := range map[string]string{"the parents": ".parents.lock", "the sandbox": "c1/.lock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // Both wait, each with a store of its own.
			n, netns := first.withStoreAt(t.TempDir()), fresh.Sandbox(t)
			lock := filepath.Join(n.Store.Dir(), file)
			if err := os.MkdirAll(filepath.Dir(lock), 0o700); err != nil {
				t.Fatal(err)
			}
			holder := exec.Command("flock", "--no-fork", lock, "sh", "-c", "kill -STOP $$; : relink capture")
			if err := holder.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = errors.Join(holder.Process.Kill(), holder.Wait()) })
			stopped := fmt.Sprintf("held by sh -c kill -STOP $$; : relink capture, process %d, which is stopped", holder.Process.Pid)
			for stat := fmt.Sprintf("/proc/%d/stat", holder.Process.Pid); ; time.Sleep(time.Millisecond) {
				if b, err := os.ReadFile(stat); err != nil || strings.Contains(string(b), ") T ") {
					break
				}
			}
			start := time.Now()
			out, err := n.call("ADD", "c1", netns)
			if err == nil || !strings.Contains(out, `"code": 11`) || !strings.Contains(out, stopped) {
				t.Errorf("ADD says %v\n%s", err, out)
			}
			if took := time.Since(start); took > 50*time.Second {
				t.Errorf("it took %s", took)
			}
			if err := holder.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			n.mustCall(t, "ADD", "c1", netns)
			n.mustCall(t, "DEL", "c1", netns)
			n.expectNothing(t, netns)
		})
	}
}
