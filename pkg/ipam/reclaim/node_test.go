package reclaim

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/test/fresh"
)

// caches makes the files of CNI caches. files has their paths below the directory.
func caches(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "results"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// cachedResult returns a file in the form of libcni.
func cachedResult(network, id, ifName, pod string) string {
	return fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"config":%q,"ifName":%q,"networkName":%q,"netns":"/run/netns/x",`+
		`"cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME",%q],["K8S_POD_UID","u1"]],"result":{"cniVersion":"1.0.0"}}`,
		id, base64.StdEncoding.EncodeToString([]byte(`{"name":"`+network+`"}`)), ifName, network, pod)
}

func look(t *testing.T, cacheDir string) *Node {
	t.Helper()
	n, err := Look(t.Context(), Sources{CacheDir: cacheDir, AllProcesses: true})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func idOf(t *testing.T, path string) attachment.Namespace {
	t.Helper()
	id, err := identity.Read(path)
	if err != nil || id.Cookie == 0 {
		t.Fatal(id, err)
	}
	return id
}

// start starts a program that keeps running. It returns the path of the program's namespace, once that differs from the
// test's.
func start(t *testing.T, name string, args ...string) (path string, end func()) {
	t.Helper()
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(end)
	path = fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
	own, _ := sandbox.Identify("/proc/self/ns/net")
	await(t, "a namespace of its own for "+name, func() bool {
		there, ok := sandbox.Identify(path)
		return ok && there != own
	})
	return path, end
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// judged returns the verdict on a holder that got the address long ago, and the evidence.
func judged(n *Node, a string, namespace attachment.Namespace) (sandbox.Verdict, string) {
	h := lease.Holder{ContainerID: "c1", IfName: "eth0", Namespace: namespace, Since: time.Now().Add(-time.Hour)}
	j := n.Judge(netip.MustParseAddr(a), h, time.Now())
	return j.Verdict, j.Reason()
}

func expect(t *testing.T, n *Node, a string, namespace attachment.Namespace, want sandbox.Verdict, why string) {
	t.Helper()
	if got, evidence := judged(n, a, namespace); got != want || !strings.Contains(evidence, why) {
		t.Errorf("%s, %q; want %s, %q", got, evidence, want, why)
	}
}

// A namespace exists while it is mounted or a process is in it, and not a moment longer.
func TestANamespaceIsKnownByMountsAndProcesses(t *testing.T) {
	const a = "10.231.77.5"
	none := caches(t, nil)
	mounted := fresh.Sandbox(t)
	both := fresh.Sandbox(t)
	ofMounted, ofBoth := idOf(t, mounted), idOf(t, both)
	inBoth, endBoth := start(t, "nsenter", "--net="+both, "sleep", "60")
	lone, endLone := start(t, "unshare", "--net", "sleep", "60")
	ofLone := idOf(t, lone)

	n := look(t, none)
	expect(t, n, a, ofMounted, sandbox.VerdictAlive, "it is in the network namespace at "+mounted)
	expect(t, n, a, ofBoth, sandbox.VerdictAlive, "it is in the network namespace at "+both)
	expect(t, n, a, ofLone, sandbox.VerdictAlive, "it is in the network namespace at "+lone)
	other := ofMounted
	other.Cookie++
	expect(t, n, a, other, sandbox.VerdictGone, fmt.Sprintf("has the inode now (%d:%d, cookie %d; it had cookie %d)", other.Device, other.Inode, ofMounted.Cookie, other.Cookie))
	expect(t, n, a, idOf(t, "/proc/self/ns/net"), sandbox.VerdictAlive, "it is in the host's network namespace")

	fresh.Remove(t, mounted)
	fresh.Remove(t, both)
	endLone()
	n = look(t, none)
	expect(t, n, a, ofMounted, sandbox.VerdictGone, "no mount and no process")
	expect(t, n, a, ofBoth, sandbox.VerdictAlive, "it is in the network namespace at "+inBoth)
	expect(t, n, a, ofLone, sandbox.VerdictGone, "no mount and no process")

	endBoth()
	expect(t, look(t, none), a, ofBoth, sandbox.VerdictGone, "no mount and no process")
}

// If no namespace was recorded, any namespace with the address may be the holder's.
func TestAnAddressIsLookedForInEveryNamespace(t *testing.T) {
	none := caches(t, nil)
	path := fresh.Sandbox(t)
	fresh.Run(t, path, "ip link add one type veth peer name two; ip addr add 10.231.77.5/24 dev one; ip addr add fd00:3::5/64 dev two")
	lone, _ := start(t, "unshare", "--net", "sh", "-ec", "ip link add one type veth peer name two; ip addr add 10.231.77.6/24 dev one; exec sleep 60")
	fresh.Run(t, "", "ip link add lan9 type veth peer name lan8; ip addr add 10.231.77.7/24 dev lan9")
	t.Cleanup(func() { fresh.IP(t, "", "link del lan9") })
	waitForAddress(t, lone, "10.231.77.6")

	unrecorded := idOf(t, path)
	unrecorded.Device, unrecorded.Inode, unrecorded.Cookie = 0, 0, 0
	n := look(t, none)
	expect(t, n, "10.231.77.5", unrecorded, sandbox.VerdictUnknown, "the network namespace at "+path+" has the address")
	expect(t, n, "fd00:3::5", unrecorded, sandbox.VerdictUnknown, "the network namespace at "+path+" has the address")
	expect(t, n, "10.231.77.6", unrecorded, sandbox.VerdictUnknown, "the network namespace at "+lone+" has the address")
	expect(t, n, "10.231.77.7", unrecorded, sandbox.VerdictUnknown, "the host's network namespace has the address")
	expect(t, n, "10.231.77.8", unrecorded, sandbox.VerdictGone, "no network namespace has the address")

	fresh.Run(t, path, "ip addr add 10.231.77.6/24 dev one")
	_, why := judged(look(t, none), "10.231.77.6", unrecorded)
	if want := "the network namespace at " + lone + " and the network namespace at " + path; !strings.Contains(why, want) &&
		!strings.Contains(why, "the network namespace at "+path+" and the network namespace at "+lone) {
		t.Errorf("%q does not name both", why)
	}
}

func waitForAddress(t *testing.T, path, a string) {
	t.Helper()
	await(t, a+" in "+path, func() bool {
		out, err := exec.Command("nsenter", "--net="+path, "ip", "-o", "addr").Output()
		return err == nil && strings.Contains(string(out), a+"/")
	})
}

// A cache that cannot be read whole proves nothing.
func TestWhatTheCachesSay(t *testing.T) {
	gone := fresh.Sandbox(t)
	id := idOf(t, gone)
	fresh.Remove(t, gone)
	lan := cachedResult("lan", "c1", "eth0", "web-0")
	for name, test := range map[string]struct {
		dir      string
		want     sandbox.Verdict
		why      string
		problems []string
	}{
		"nothing":                     {caches(t, nil), sandbox.VerdictGone, "does not have it", nil},
		"another container":           {caches(t, map[string]string{"results/x": cachedResult("lan", "c10", "eth0", "web-0")}), sandbox.VerdictGone, "does not have it", nil},
		"the runtime":                 {caches(t, map[string]string{"results/lan-c1-eth0": lan}), sandbox.VerdictDELDue, "has it: its runtime owes a DEL", nil},
		"another of its interfaces":   {caches(t, map[string]string{"results/x": cachedResult("lan", "c1", "net1", "web-0")}), sandbox.VerdictDELDue, "has it: its runtime owes a DEL", nil},
		"Multus, with results":        {caches(t, map[string]string{"multus/results/lan-c1-net1": cachedResult("lan", "c1", "net1", "web-0")}), sandbox.VerdictDELDue, "has it: its runtime owes a DEL", nil},
		"Multus, with delegates":      {caches(t, map[string]string{"results/x": cachedResult("multus", "c1", "eth0", "web-0"), "multus/c1": `[{"Conf":{"name":"lan"}}]`}), sandbox.VerdictDELDue, "has it: its runtime owes a DEL", nil},
		"Multus alone":                {caches(t, map[string]string{"multus/c1": `[{"Conf":{"name":"lan"}}]`}), sandbox.VerdictDELDue, "has it: its runtime owes a DEL", nil},
		"a torn file of another":      {caches(t, map[string]string{"results/lan-c9-eth0": lan[:40]}), sandbox.VerdictUnknown, "results/lan-c9-eth0: unexpected end of JSON input", []string{"results/lan-c9-eth0"}},
		"a torn file of Multus":       {caches(t, map[string]string{"multus/c9": "["}), sandbox.VerdictUnknown, "multus/c9: unexpected end of JSON input", []string{"multus/c9"}},
		"several torn files":          {caches(t, map[string]string{"results/a": "", "results/b": "", "multus/c9": "["}), sandbox.VerdictUnknown, "results/a: unexpected end of JSON input, and 2 more files cannot be read", []string{"results/a", "results/b", "multus/c9"}},
		"it, beside a torn file":      {caches(t, map[string]string{"results/lan-c1-eth0": lan, "results/x": ""}), sandbox.VerdictDELDue, "has it: its runtime owes a DEL", []string{"results/x"}},
		"no such directory":           {filepath.Join(t.TempDir(), "cni"), sandbox.VerdictUnknown, "there is no CNI cache in", []string{"--cni-cache names the directory that has it"}},
		"a directory without a cache": {t.TempDir(), sandbox.VerdictUnknown, "there is no CNI cache in", []string{"--cni-cache names the directory that has it"}},
		"a file in its place":         {fileAt(t, "results"), sandbox.VerdictUnknown, "not a directory", []string{"not a directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := look(t, test.dir)
			expect(t, n, "10.231.77.5", id, test.want, test.why)
			if !slices.EqualFunc(n.Problems(), test.problems, strings.Contains) {
				t.Errorf("problems %q, want parts %q", n.Problems(), test.problems)
			}
		})
	}
}

// fileAt returns a directory with a file of this name.
func fileAt(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// An entry of another network says nothing about the interface on this one.
func TestEntryIsOfTheNetwork(t *testing.T) {
	n := look(t, caches(t, map[string]string{
		"multus/results/a": strings.ReplaceAll(cachedResult("lan", "c1", "eth0", ""), "K8S_POD_", "OTHER_"),
		"results/a":        cachedResult("lan", "c1", "eth0", "web-0"),
		"results/b":        cachedResult("multus", "c1", "eth0", "web-1"),
		"results/c":        cachedResult("lan", "c2", "eth0", ""),
		"results/d":        cachedResult("other", "c4", "eth0", "web-4"),
	}))
	for id, pod := range map[string]string{"c1": "web-0", "c2": ""} {
		of := attachment.Key{Network: "lan", ContainerID: id, IfName: "eth0"}
		if e, ok := n.Entry(of); !ok || e.Attachment != of || e.Pod.Name != pod {
			t.Errorf("%s: %+v, %v", id, e, ok)
		}
	}
	for _, none := range [][2]string{{"c1", "net1"}, {"c3", "eth0"}, {"c4", "eth0"}} {
		if e, ok := n.Entry(attachment.Key{Network: "lan", ContainerID: none[0], IfName: none[1]}); ok {
			t.Errorf("%v: %+v", none, e)
		}
	}
	if !n.cache.has("c4") {
		t.Error("c4 is not known")
	}
}

// Namespaces come and go all the time. None of these makes a verdict uncertain.
func TestLookWhileNamespacesComeAndGo(t *testing.T) {
	stop := make(chan struct{})
	var stopped sync.WaitGroup
	for range 4 {
		stopped.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("unshare", "--net", "true").Run()
				}
			}
		})
	}
	path := fresh.Sandbox(t)
	id, none := idOf(t, path), caches(t, nil)
	for range 200 {
		n := look(t, none)
		expect(t, n, "10.231.77.5", id, sandbox.VerdictAlive, path)
		if len(n.uninspected) > 0 {
			t.Errorf("not looked into: %q", n.uninspected)
		}
	}
	close(stop)
	stopped.Wait()
}

// A thread that is in a namespace for a moment does not hide other ways to it: the mount in another mount namespace,
// and the open file.
func TestLookIntoWhatAThreadIsInForAMoment(t *testing.T) {
	for what, keep := range map[string]func(path string) (stays string){
		"a mount that others see": func(path string) string {
			return fmt.Sprintf("/proc/%d/root%s", fresh.Start(t, "unshare", "-m", "--propagation", "private", "sh", "-c", "echo; exec sleep 60"), path)
		},
		"an open file": func(path string) string {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			return fmt.Sprintf("/proc/self/fd/%d", f.Fd())
		},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ns")
			fresh.At(t, path)
			id, stays := idOf(t, path), keep(path)
			// Removing the file would remove the mount everywhere.
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			openOften(t, stays)
			none := caches(t, nil)
			for range 30 {
				n := look(t, none)
				expect(t, n, "10.231.77.5", id, sandbox.VerdictAlive, "it is in the network namespace that ")
				expect(t, n, "10.231.77.5", attachment.Namespace{BootID: id.BootID}, sandbox.VerdictGone, "no network namespace has the address")
				if len(n.uninspected) > 0 {
					t.Fatalf("not looked into: %q", n.uninspected)
				}
			}
		})
	}
}

// openOften lets threads enter and leave the namespace until the test ends.
func openOften(t *testing.T, path string) {
	t.Helper()
	stop := make(chan struct{})
	var stopped sync.WaitGroup
	t.Cleanup(func() { close(stop); stopped.Wait() })
	for range 3 {
		stopped.Go(func() {
			runtime.LockOSThread() // The thread ends with its goroutine.
			own, err := os.Open("/proc/thread-self/ns/net")
			if err != nil {
				t.Error(err)
				return
			}
			defer own.Close()
			for {
				f, err := os.Open(path)
				if err == nil {
					err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
					_ = f.Close()
				}
				time.Sleep(time.Millisecond)
				if err := errors.Join(err, unix.Setns(int(own.Fd()), unix.CLONE_NEWNET)); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
}

// A namespace that exists but cannot be opened counts as existing.
func TestANamespaceThatCannotBeLookedInto(t *testing.T) {
	n := emptyNode()
	long := "/" + strings.Repeat("a", 300)
	if !n.inspect(sandbox.Sandbox{NamespaceFile: attachment.NamespaceFile{Device: 4, Inode: 101}, Paths: []string{"/nowhere", long}}, "it") {
		t.Error("it is called missed")
	}
	want := "it: open namespace " + long + ": file name too long"
	if !slices.Equal(n.Problems(), []string{want}) || n.live[inode{4, 101}] != (liveNamespace{name: "it"}) {
		t.Errorf("problems %q, want %q; live %v", n.Problems(), want, n.live)
	}
	if n.inspect(sandbox.Sandbox{NamespaceFile: attachment.NamespaceFile{Device: 4, Inode: 102}, Paths: []string{"/nowhere"}}, "it") {
		t.Error("one that is gone is called looked into")
	}
	path := fresh.Sandbox(t)
	if n.inspect(sandbox.Sandbox{NamespaceFile: attachment.NamespaceFile{Device: 4, Inode: 102}, Paths: []string{path}}, "it") {
		t.Error("one that is at none of its paths is called looked into")
	}
	id := idOf(t, path)
	if !n.inspect(sandbox.Sandbox{NamespaceFile: attachment.NamespaceFile{Device: id.Device, Inode: id.Inode}, Paths: []string{"/nowhere", path}}, "it") || len(n.uninspected) != 1 {
		t.Errorf("its second path is not tried: %q", n.uninspected)
	}
	if got := n.live[inode{id.Device, id.Inode}]; got.cookie != id.Cookie {
		t.Errorf("cookie %d, want %d", got.cookie, id.Cookie)
	}
}

// A caller that cannot see all processes would take live sandboxes for gone ones.
func TestLookOfNobody(t *testing.T) {
	start(t, "unshare", "--net", "sleep", "60")
	none := caches(t, nil)
	var err error
	fresh.AsNobody(t, func() { _, err = Look(t.Context(), Sources{CacheDir: none, AllProcesses: true}) })
	if err == nil || !strings.HasPrefix(err.Error(), "cannot see the network namespaces of ") || !strings.HasSuffix(err.Error(), ": run it as root on the node") {
		t.Errorf("got %v", err)
	}
}

func TestLookThatIsInterrupted(t *testing.T) {
	ctx, cancel := contextOf(t)
	cancel()
	if _, err := Look(ctx, Sources{CacheDir: caches(t, nil), AllProcesses: true}); !errors.Is(err, ctx.Err()) {
		t.Errorf("got %v", err)
	}
}
