package kernel

import (
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// eachWay runs the test once for each way to make an interface: the way of this kernel, and the way of
// older kernels.
func eachWay(t *testing.T, test func(*testing.T)) {
	t.Run("here", test)
	usual := createsInTarget
	t.Cleanup(func() { createsInTarget = usual })
	createsInTarget = func() bool { return false }
	t.Run("older", test)
}

func TestCreateGivesNameIndexAndMAC(t *testing.T) { eachWay(t, createGivesNameIndexAndMAC) }

func createGivesNameIndexAndMAC(t *testing.T) {
	w := newFixture(t)
	link := bridge("eth0")
	link.Index, link.MTU = 77, 1400
	if _, err := Create(w.host, w.sandbox, w.index(t, "lan0"), link); err != nil {
		t.Fatal(err)
	}
	got := w.capture(t, "eth0").Link
	if got.Index != 77 || got.MTU != 1400 || got.MAC != link.MAC || got.Macvlan.Mode != "bridge" || got.Up {
		t.Errorf("created %+v", got)
	}
}

func TestCreateWithoutIndexTakesTheNextOne(t *testing.T) {
	eachWay(t, createWithoutIndexTakesTheNextOne)
}

func createWithoutIndexTakesTheNextOne(t *testing.T) {
	w := newFixture(t)
	if _, err := Create(w.host, w.sandbox, w.index(t, "lan0"), bridge("eth0")); err != nil {
		t.Fatal(err)
	}
	if got := w.capture(t, "eth0").Link.Index; got != 2 {
		t.Errorf("index %d, want 2: lo has 1", got)
	}
}

func TestCreateTakesAnotherIndexIfItIsTaken(t *testing.T) {
	eachWay(t, createTakesAnotherIndexIfItIsTaken)
}

func createTakesAnotherIndexIfItIsTaken(t *testing.T) {
	w := newFixture(t)
	fresh.IP(t, w.path, "link add other type veth peer name peer")
	taken := must(w.sandbox.Index("other"))(t)
	link := bridge("eth0")
	link.Index = taken
	if _, err := Create(w.host, w.sandbox, w.index(t, "lan0"), link); err != nil {
		t.Fatal(err)
	}
	if got := w.capture(t, "eth0").Link.Index; got == taken || got > 100 {
		t.Errorf("index %d", got)
	}
}

func TestCreateIsNotDisturbedByTheHostsDevices(t *testing.T) {
	eachWay(t, createIsNotDisturbedByTheHostsDevices)
}

func createIsNotDisturbedByTheHostsDevices(t *testing.T) {
	w := newFixture(t)
	fresh.IP(t, "", "link add eth0 type veth peer name eth0peer")
	t.Cleanup(func() { fresh.IP(t, "", "link del eth0") })
	link := bridge("eth0")
	link.Index = w.index(t, "eth0")
	if _, err := Create(w.host, w.sandbox, w.index(t, "lan0"), link); err != nil {
		t.Fatal(err)
	}
	if got := w.capture(t, "eth0").Link.Index; got != link.Index {
		t.Errorf("index %d, want %d, although the host uses it too", got, link.Index)
	}
}

// If a parent and a child have the same index, the kernel leaves the parent's index out of its answer.
func TestCaptureFindsAParentOfTheSameIndex(t *testing.T) {
	eachWay(t, captureFindsAParentOfTheSameIndex)
}

func captureFindsAParentOfTheSameIndex(t *testing.T) {
	w := newFixture(t)
	link := bridge("eth0")
	link.Index = w.index(t, "lan0")
	if _, err := Create(w.host, w.sandbox, link.Index, link); err != nil {
		t.Fatal(err)
	}
	if got := w.capture(t, "eth0").Parents; len(got) != 1 || got[0].Name != "lan0" {
		t.Errorf("parents %+v", got)
	}
}

func TestCreateLeavesNothingBehindWhenTheNameIsTaken(t *testing.T) {
	eachWay(t, createLeavesNothingBehindWhenTheNameIsTaken)
}

func createLeavesNothingBehindWhenTheNameIsTaken(t *testing.T) {
	w := newFixture(t)
	fresh.IP(t, w.path, "link add eth0 type veth peer name peer")
	// The states are left out, because lan0 may be about to get its carrier.
	devices := func() string {
		return fresh.Run(t, "", "ip -o link | cut -d: -f1,2") + fresh.Run(t, w.path, "ip -o link | cut -d: -f1,2")
	}
	before := devices()
	_, err := Create(w.host, w.sandbox, w.index(t, "lan0"), bridge("eth0"))
	if !errors.Is(err, ErrExists) {
		t.Errorf("error %v, want ErrExists", err)
	}
	// A device that is made in the host and then moved leaves nothing behind either.
	link := bridge("eth0")
	link.Index = 55
	if err := createAndMove(w.host, w.sandbox, w.index(t, "lan0"), link); !errors.Is(err, unix.EEXIST) {
		t.Errorf("error %v, want EEXIST", err)
	}
	if after := devices(); after != before {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
}

func TestCreateSaysWhatTheKernelSays(t *testing.T) { eachWay(t, createSaysWhatTheKernelSays) }

func createSaysWhatTheKernelSays(t *testing.T) {
	w := newFixture(t)
	_, err := Create(w.host, w.sandbox, 9999, bridge("eth0"))
	if err == nil || !strings.Contains(err.Error(), "create macvlan eth0: ") {
		t.Errorf("error %v", err)
	}
}

// Many goroutines use one socket of the host at once. Each gets its own answers.
func TestCreateFromManyGoroutines(t *testing.T) { eachWay(t, createFromManyGoroutines) }

func createFromManyGoroutines(t *testing.T) {
	w := newFixture(t)
	parent := w.index(t, "lan0")
	const count = 40
	paths := make([]string, count)
	for i := range paths {
		paths[i] = fresh.Sandbox(t)
	}
	var wg sync.WaitGroup
	for _, path := range paths {
		wg.Go(func() {
			sandbox, err := Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer sandbox.Close()
			link := bridge("eth0")
			link.Index, link.MAC = parent, ""
			if _, err := Create(w.host, sandbox, parent, link); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if out := fresh.IP(t, "", "-o link"); strings.Contains(out, temporaryPrefix) {
		t.Errorf("left behind:\n%s", out)
	}
}

func TestDeleteOfWhatIsNotThere(t *testing.T) {
	w := newFixture(t)
	if err := w.sandbox.Delete("eth0"); !errors.Is(err, ErrNoDevice) {
		t.Errorf("error %v, want ErrNoDevice", err)
	}
}

// The next Create deletes what an older kernel's way leaves behind after a kill.
func TestCreateSweepsWhatAKillLeft(t *testing.T) {
	w := newFixture(t)
	if _, err := Create(w.host, w.sandbox, w.index(t, "lan0"), bridge("rlnk4abcdef0")); err != nil {
		t.Fatal(err)
	}
	fresh.IP(t, w.path, "link add other type bridge")
	if _, err := createOlder(w.host, w.sandbox, w.index(t, "lan0"), bridge("eth0")); err != nil {
		t.Fatal(err)
	}
	if out := fresh.IP(t, w.path, "-o link"); strings.Contains(out, "rlnk") || !strings.Contains(out, "other") {
		t.Errorf("left:\n%s", out)
	}
}

// The name alone does not make relink delete a device of the pod.
func TestCreateSweepsNothingOfThePods(t *testing.T) {
	w := newFixture(t)
	fresh.IP(t, w.path, "link add rlnk40000000 type bridge")
	fresh.IP(t, w.path, "link add own type veth peer name peer")
	fresh.IP(t, w.path, "link add rlnk40000001 link own type macvlan")
	fresh.IP(t, w.path, "link set rlnk40000001 up")
	if _, err := createOlder(w.host, w.sandbox, w.index(t, "lan0"), bridge("eth0")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rlnk40000000", "rlnk40000001"} {
		if there, err := w.sandbox.Exists(name); err != nil || !there {
			t.Errorf("%s is gone: %v", name, err)
		}
	}
}

// There are more requests than one datagram takes.
func TestBuildWithAThousandRoutes(t *testing.T) { eachWay(t, buildWithAThousandRoutes) }

func buildWithAThousandRoutes(t *testing.T) {
	w := newFixture(t)
	want := netstate.Interface{Link: bridge("eth0"), Addresses: []netstate.Address{{Prefix: prefix("10.3.0.2/24")}}}
	want.Link.Index = 77
	const count = 1000
	for i := range count {
		to := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(100 + i>>8), byte(i), 0}), 24)
		want.Routes = append(want.Routes, netstate.Route{Destination: to, Gateway: addr("10.3.0.1"), Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST})
	}
	if _, err := Build(w.host, w.sandbox, w.index(t, "lan0"), want); err != nil {
		t.Fatal(err)
	}
	if got := w.capture(t, "eth0"); len(got.Routes) != count {
		t.Errorf("%d routes", len(got.Routes))
	}
}
