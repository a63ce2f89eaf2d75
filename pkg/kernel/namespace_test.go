package kernel

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

func TestOpenRefusesWhatIsNoNetworkNamespace(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, why := range map[string]string{
		plain:                      "it is a plain file",
		plain + "-not":             "it does not exist",
		plain + "/below":           "it does not exist",
		"/proc/self/ns/mnt":        "it is a namespace of another type",
		"/proc/4194304000/ns/net":  "it does not exist",
		"/proc/self/fdinfo/nobody": "it does not exist",
	} {
		n, err := Open(path)
		if err == nil {
			n.Close()
		}
		if !errors.Is(err, ErrNoNamespace) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: error %v, want ErrNoNamespace: %s", path, err, why)
		}
	}
}

// The kernel reuses the inode number of a namespace that is gone for the next one. Only the cookie tells the two apart.
func TestANamespaceInThePlaceOfAnotherIsAStranger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ns")
	identity := func() attachment.Namespace {
		fresh.At(t, path)
		n := must(Open(path))(t)
		defer n.Close()
		return n.Identity()
	}
	recorded := identity()
	if err := CheckNamespace(recorded); err != nil {
		t.Errorf("the same: %v", err)
	}
	for range 50 {
		fresh.Remove(t, path)
		stranger := identity()
		if err := recorded.Same(stranger); err == nil {
			t.Fatalf("%+v is taken for %+v", stranger, recorded)
		}
	}
	fresh.Remove(t, path)
	if err := CheckNamespace(recorded); !errors.Is(err, ErrNoNamespace) {
		t.Errorf("gone: error %v, want ErrNoNamespace", err)
	}
}

func TestOpenHostIsTheOwnNamespace(t *testing.T) {
	host, own := must(OpenHost())(t), must(Open("/proc/self/ns/net"))(t)
	defer host.Close()
	defer own.Close()
	if err := host.Identity().Same(own.Identity()); err != nil {
		t.Error(err)
	}
}

// While devices come and go, a list has all devices that stay. The kernel marks a list that changed during the dump,
// and relink reads it again.
func TestListsAreWholeWhileTheyChange(t *testing.T) {
	w := newFixture(t)
	const pairs = 150
	var batch strings.Builder
	for i := range pairs {
		batch.WriteString("link add stays" + string(rune('a'+i/26)) + string(rune('a'+i%26)) + " type bridge\n")
	}
	fresh.Run(t, w.path, "ip -b - <<'X'\n"+batch.String()+"X")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				fresh.Run(t, w.path, "ip link add comes type bridge; ip link del comes")
			}
		}
	})
	for range 200 {
		devices, err := w.sandbox.Devices()
		if err != nil {
			t.Error(err)
			break
		}
		staying := 0
		for _, d := range devices {
			if strings.HasPrefix(d.Name, "stays") {
				staying++
			}
		}
		if staying != pairs {
			t.Errorf("%d of %d devices listed", staying, pairs)
			break
		}
	}
	close(stop)
	wg.Wait()
}

func TestDefaultRouteDevice(t *testing.T) {
	w := newFixture(t)
	if got := must(w.host.DefaultRouteDevice())(t); got != 0 {
		t.Errorf("without a default route: device %d", got)
	}
	fresh.IP(t, "", "route add default dev lan1 table 100")
	fresh.IP(t, "", "-6 route add default dev lan1")
	if got := must(w.host.DefaultRouteDevice())(t); got != w.index(t, "lan1") {
		t.Errorf("IPv6: device %d", got)
	}
	fresh.IP(t, "", "route add default dev lan0")
	if got := must(w.host.DefaultRouteDevice())(t); got != w.index(t, "lan0") {
		t.Errorf("IPv4: device %d", got)
	}
}

// A host that stays open knows the sandboxes that are opened and closed meanwhile, one after the other.
func TestAHostKnowsTheNumberOfEachSandbox(t *testing.T) {
	w := newFixture(t)
	for range 3 {
		sandbox := must(Open(w.path))(t)
		must(w.host.ensureNSID(sandbox))(t)
		must(sandbox.ensureNSID(w.host))(t)
		if one, other := must(w.host.nsid(sandbox))(t), must(sandbox.nsid(w.host))(t); one < 0 || other < 0 {
			t.Errorf("numbers %d and %d", one, other)
		}
		sandbox.Close()
	}
}

func TestAKernelWithoutCookiesIsRefused(t *testing.T) {
	err := cookieError(unix.ENOPROTOOPT)
	if !errors.Is(err, errOldKernel) || !strings.Contains(err.Error(), "SO_NETNS_COOKIE") || !strings.Contains(err.Error(), "5.14") {
		t.Errorf("%v", err)
	}
	if err := cookieError(unix.EBADF); errors.Is(err, errOldKernel) || !errors.Is(err, unix.EBADF) {
		t.Errorf("another failure: %v", err)
	}
	if cookie := newFixture(t).sandbox.Identity().Cookie; cookie == 0 {
		t.Error("no cookie")
	}
}

// onlyWithout runs the test again in a new process, as root but without one capability. It returns the first line of
// that process's standard output. In the new process, it returns false.
func onlyWithout(t *testing.T, capability uintptr) (output string, outside bool) {
	t.Helper()
	const inside = "RELINK_TEST_WITHOUT_CAPABILITY"
	if os.Getenv(inside) != "" {
		return "", false
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inside+"=1")
	ran := make(chan error)
	go func() {
		runtime.LockOSThread() // The thread has lost a capability. It ends with this goroutine.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			ran <- err
			return
		}
		b, err := cmd.Output()
		output, _, _ = strings.Cut(string(b), "\n")
		ran <- err
	}()
	if err := <-ran; err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return output, true
}

// A refusal says that relink must run as root, and which capability it needs.
func TestWithoutCapSysAdmin(t *testing.T) {
	got, outside := onlyWithout(t, unix.CAP_SYS_ADMIN)
	if !outside {
		_, err := OpenHost()
		fmt.Println(err)
		return
	}
	const want = "enter namespace /proc/thread-self/ns/net: " +
		"operation not permitted: relink must run as root (it needs CAP_SYS_ADMIN)"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestWithoutCapNetAdmin(t *testing.T) {
	got, outside := onlyWithout(t, unix.CAP_NET_ADMIN)
	if !outside {
		host := must(OpenHost())(t)
		defer host.Close()
		fmt.Println(host.Configure(1, netstate.Interface{Link: netstate.Link{Name: "lo", Up: true}}, true))
		return
	}
	if want := "set lo up: operation not permitted: relink must run as root (it needs CAP_NET_ADMIN)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestWithoutCapNetRaw(t *testing.T) {
	got, outside := onlyWithout(t, unix.CAP_NET_RAW)
	if !outside {
		host := must(OpenHost())(t)
		defer host.Close()
		_, err := host.NewAnnouncer()
		fmt.Println(err)
		return
	}
	if want := "socket in /proc/thread-self/ns/net: operation not permitted: relink must run as root (it needs CAP_NET_RAW)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestWithoutCapSysPtrace(t *testing.T) {
	got, outside := onlyWithout(t, unix.CAP_SYS_PTRACE)
	path := fmt.Sprintf("/proc/%d/ns/net", os.Getppid())
	if !outside {
		_, err := Open(path)
		fmt.Println(strings.ReplaceAll(err.Error(), path, "PARENT"))
		return
	}
	if want := "open namespace PARENT: permission denied: relink must run as root (it needs CAP_SYS_PTRACE)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
