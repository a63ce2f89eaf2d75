package restore

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

func TestNamesInParentAreThoseOfCheckpoints(t *testing.T) {
	onBond, inSandbox, own := recordOn(vlan("bond4.3", 3), bond("bond4", 0, 1)), recordOn(deviceOfKind("veth", "up0")), recordOn()
	inSandbox.Interface.ParentsInSandbox = true
	own.Interface.Link = netstate.Link{Kind: netstate.KindNIC, Name: "net1", Alias: "ens1", NIC: &netstate.NIC{}}
	records := []checkpoint.Record{onBond, inSandbox, own}
	const they = "; they have: bond4, bond4.3, ens1, eth0, eth1"
	for name, test := range map[string]struct {
		mapped  map[string]string
		records []checkpoint.Record
		want    string
	}{
		"nothing":                          {nil, nil, ""},
		"a VLAN":                           {map[string]string{"bond4.3": "vlan3"}, records, ""},
		"a bond":                           {map[string]string{"bond4": "eth0"}, records, ""},
		"a member, and a NIC of a pod's":   {map[string]string{"eth0": "ens5", "ens1": "ens2"}, records, ""},
		"said again":                       {map[string]string{"old0": "eth0"}, records, "--parent old0=eth0 moves nothing: no checkpoint has a parent or bond member old0"},
		"a typo with a name that is right": {map[string]string{"typo": "eth1"}, records, "--parent typo=eth1 moves nothing: no checkpoint has a parent or bond member typo"},
		"the first of two typos":           {map[string]string{"typo": "eth5", "other": "eth9"}, records, "--parent other=eth9: no checkpoint has a parent or bond member other" + they},
		"what is in the sandbox":           {map[string]string{"up0": "eth5"}, records, "--parent up0=eth5: no checkpoint has a parent or bond member up0" + they},
		"the interface itself":             {map[string]string{"net1": "eth5"}, records, "--parent net1=eth5: no checkpoint has a parent or bond member net1" + they},
		"without any checkpoint":           {map[string]string{"eth0": "eth1"}, nil, "--parent eth0=eth1: no checkpoint has a parent or bond member eth0; they have: "},
	} {
		notes, err := checkNames(test.mapped, test.records)
		got := strings.Join(notes, "")
		if err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// The user can repeat a mapping with each restore, even after the checkpoints were rewritten.
func TestAParentThatIsSaidAgain(t *testing.T) {
	p := newLiveSandbox(t)
	fresh.Run(t, "", "ip link del lan0; ip link add new0 type veth peer name new1; ip link set new0 up; ip link set new1 up")
	t.Cleanup(func() { fresh.Run(t, "", "ip link del new0"); parent(t) })
	opts := Options{Store: p.store, ParentOptions: ParentOptions{Mapped: map[string]string{"lan0": "new0"}}}
	for _, want := range []change.State{Restored, AsRecorded, AsRecorded} {
		p.expectOutcome(t, must(Run(t.Context(), opts))(t).Outcomes[0], want)
		if names := must(p.store.Load("c1", "eth0"))(t).Interface.Parents; names[0].Name != "new0" {
			t.Errorf("the checkpoint has %+v", names)
		}
		p.save(t, "eth0", "eth0") // This is what relink capture --refresh does.
	}
	opts.Mapped = map[string]string{"lan0": "lan0"}
	if _, err := Run(t.Context(), opts); err == nil || !strings.HasSuffix(err.Error(), "no checkpoint has a parent or bond member lan0; they have: new0") {
		t.Errorf("taken back: %v", err)
	}
}

// Not all of the interface could be restored, and the old parent is still there: the next restore does not take it for the new one.
func TestAParentThatIsSaidOnceStays(t *testing.T) {
	p := newLiveSandbox(t)
	fresh.Run(t, "", "ip link add new0 type veth peer name new1; ip link set new0 up; ip link set new1 up")
	t.Cleanup(func() { fresh.IP(t, "", "link del new0") })
	record := must(p.store.Load("c1", "eth0"))(t)
	route := record.Interface.Routes[0]
	route.Destination, route.Gateway = netip.MustParsePrefix("10.55.0.0/16"), netip.MustParseAddr("10.200.0.1")
	record.Interface.Routes = append(record.Interface.Routes, route)
	if err := p.store.Save(record); err != nil {
		t.Fatal(err)
	}
	opts := Options{Store: p.store, ParentOptions: ParentOptions{Mapped: map[string]string{"lan0": "new0"}}}
	for range 2 {
		fresh.IP(t, p.netns, "link del eth0")
		o := must(Run(t.Context(), opts))(t).Outcomes[0]
		if o.State != change.Failed || o.Parent != "new0" {
			t.Errorf("%s on %s: %s", o.State, o.Parent, o.Reason)
		}
		opts.Mapped = nil
	}
}

// A move can end while a restore waits for a device.
func TestARestoreTakesTheParentsOfNow(t *testing.T) {
	p := newLiveSandbox(t)
	moved := must(p.store.Load("c1", "eth0"))(t)
	listed := moved
	listed.Interface.Parents = []netstate.Device{{Kind: "veth", Name: "gone0", MTU: 1500}}
	if err := p.store.Save(listed); err != nil {
		t.Fatal(err)
	}
	opts := Options{Store: p.store, Wait: 5 * time.Second, Waiting: func([]string) {
		if err := p.store.Save(moved); err != nil {
			t.Error(err)
		}
	}}
	p.expectOutcome(t, must(Run(t.Context(), opts))(t).Outcomes[0], AsRecorded)
}

// With one device under two names, a second run would move pods once more.
func TestParentsThatOverlapAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		mapped map[string]string
		want   string
	}{
		"one":            {map[string]string{"lan0": "lan2"}, ""},
		"both to one":    {map[string]string{"lan0": "lan2", "lan1": "lan2"}, ""},
		"said of itself": {map[string]string{"lan0": "lan2", "lan2": "lan2", "lan1": "lan1"}, ""},
		"an exchange": {map[string]string{"lan0": "lan2", "lan2": "lan0"}, "--parent lan0=lan2 together with --parent lan2=lan0: lan2 would mean two devices. " +
			"NICs that exchanged their names are told apart by their hardware: relink restore without --parent. " +
			"To move pods, restore them by name with one of the two: relink restore --parent lan0=lan2 POD"},
		"a chain": {map[string]string{"lan0": "lan2", "lan2": "lan4"}, "--parent lan0=lan2 together with --parent lan2=lan4: lan2 would mean two devices. " +
			"NICs that exchanged their names are told apart by their hardware: relink restore without --parent. " +
			"To move pods, restore them by name with one of the two: relink restore --parent lan0=lan2 POD"},
	} {
		got := ""
		if err := checkOverlap(test.mapped); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A DEL can come between the look at the checkpoints and the look at the interfaces. Then there is nothing to report.
func TestADryRunReportsNothingOfADetachedPod(t *testing.T) {
	p := newLiveSandbox(t)
	opts := Options{Store: p.store, DryRun: true}
	fresh.IP(t, p.netns, "link del eth0")
	p.expectOutcome(t, must(Run(t.Context(), opts))(t).Outcomes[0], ToRestore)
	time.AfterFunc(150*time.Millisecond, func() { _ = p.store.Forget("c1", "eth0") })
	if report := must(Run(t.Context(), opts))(t); len(report.Outcomes) > 0 {
		t.Errorf("%+v", report.Outcomes)
	}
}
