package kernel

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

func TestCreateGivesNameIndexAndMAC(t *testing.T) {
	w := newWorld(t)
	link := bridge("eth0")
	link.Index, link.MTU = 77, 1400
	if err := Create(w.host, w.sandbox, w.index(t, "lan0"), link); err != nil {
		t.Fatal(err)
	}
	got := w.capture(t, "eth0").Link
	if got.Index != 77 || got.MTU != 1400 || got.MAC != link.MAC || got.Macvlan.Mode != "bridge" || got.Up {
		t.Errorf("created %+v", got)
	}
}

func TestCreateWithoutIndexTakesTheNextOne(t *testing.T) {
	w := newWorld(t)
	if err := Create(w.host, w.sandbox, w.index(t, "lan0"), bridge("eth0")); err != nil {
		t.Fatal(err)
	}
	if got := w.capture(t, "eth0").Link.Index; got != 2 {
		t.Errorf("index %d, want 2: lo has 1", got)
	}
}

func TestCreateTakesAnotherIndexIfItIsTaken(t *testing.T) {
	w := newWorld(t)
	fresh.IP(t, w.path, "link add other type veth peer name peer")
	taken := must(w.sandbox.Index("other"))(t)
	link := bridge("eth0")
	link.Index = taken
	if err := Create(w.host, w.sandbox, w.index(t, "lan0"), link); err != nil {
		t.Fatal(err)
	}
	if got := w.capture(t, "eth0").Link.Index; got == taken || got > 100 {
		t.Errorf("index %d", got)
	}
}

func TestCreateIsNotDisturbedByTheHostsDevices(t *testing.T) {
	w := newWorld(t)
	fresh.IP(t, "", "link add eth0 type veth peer name eth0peer")
	t.Cleanup(func() { fresh.IP(t, "", "link del eth0") })
	link := bridge("eth0")
	link.Index = w.index(t, "eth0")
	if err := Create(w.host, w.sandbox, w.index(t, "lan0"), link); err != nil {
		t.Fatal(err)
	}
	if got := w.capture(t, "eth0").Link.Index; got != link.Index {
		t.Errorf("index %d, want %d, although the host uses it too", got, link.Index)
	}
}

// A parent and a child of the same index: the kernel leaves the parent's out of its
// answer.
func TestCaptureFindsAParentOfTheSameIndex(t *testing.T) {
	w := newWorld(t)
	link := bridge("eth0")
	link.Index = w.index(t, "lan0")
	if err := Create(w.host, w.sandbox, link.Index, link); err != nil {
		t.Fatal(err)
	}
	if got := w.capture(t, "eth0").Parents; len(got) != 1 || got[0].Name != "lan0" {
		t.Errorf("parents %+v", got)
	}
}

func TestCreateLeavesNothingBehindWhenTheNameIsTaken(t *testing.T) {
	w := newWorld(t)
	fresh.IP(t, w.path, "link add eth0 type veth peer name peer")
	before := fresh.IP(t, "", "-o link") + fresh.IP(t, w.path, "-o link")
	err := Create(w.host, w.sandbox, w.index(t, "lan0"), bridge("eth0"))
	if !errors.Is(err, ErrExists) {
		t.Errorf("error %v, want ErrExists", err)
	}
	// The same, found only by the kernel: as in a race with somebody else.
	link := bridge("eth0")
	link.Index = 55
	err = createOnce(w.host, w.sandbox, w.index(t, "lan0"), link)
	if !errors.Is(err, ErrExists) {
		t.Errorf("error %v, want ErrExists", err)
	}
	if after := fresh.IP(t, "", "-o link") + fresh.IP(t, w.path, "-o link"); after != before {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
}

func TestCreateSaysWhatTheKernelSays(t *testing.T) {
	w := newWorld(t)
	err := Create(w.host, w.sandbox, 9999, bridge("eth0"))
	if err == nil || !strings.Contains(err.Error(), "create macvlan eth0: ") {
		t.Errorf("error %v", err)
	}
}

// Many at once over one socket in the host: each answer reaches who asked.
func TestCreateFromManyGoroutines(t *testing.T) {
	w := newWorld(t)
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
			if err := Create(w.host, sandbox, parent, link); err != nil {
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
	w := newWorld(t)
	if err := w.sandbox.Delete("eth0"); !errors.Is(err, ErrNoDevice) {
		t.Errorf("error %v, want ErrNoDevice", err)
	}
}
