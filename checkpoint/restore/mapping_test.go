package restore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

func TestNamesInParentAreThoseOfCheckpoints(t *testing.T) {
	onBond, inSandbox, own := recordOn(vlan("bond4.3", 3), bond("bond4", 0, 1)), recordOn(deviceOfKind("veth", "up0")), recordOn()
	inSandbox.Interface.ParentsInSandbox = true
	own.Interface.Link = netstate.Link{Kind: netstate.KindNIC, Name: "net1", Alias: "ens1", NIC: &netstate.NIC{}}
	records := []checkpoint.Record{onBond, inSandbox, own}
	renamed := func(was string) (string, error) {
		return map[string]string{"old0": "eth0", "old1": "ens9"}[was], nil
	}
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
		"said again":                       {map[string]string{"old0": "eth0"}, records, ""},
		"a typo with a name that is right": {map[string]string{"typo": "eth1"}, records, "--parent typo=eth1: no checkpoint has a parent or bond member typo" + they},
		"the first of two typos":           {map[string]string{"typo": "eth1", "other": "eth0"}, records, "--parent other=eth0: no checkpoint has a parent or bond member other" + they},
		"what is in the sandbox":           {map[string]string{"up0": "eth1"}, records, "--parent up0=eth1: no checkpoint has a parent or bond member up0" + they},
		"the interface itself":             {map[string]string{"net1": "eth1"}, records, "--parent net1=eth1: no checkpoint has a parent or bond member net1" + they},
		"said otherwise before": {map[string]string{"old1": "eth1"}, records,
			"--parent old1=eth1: an earlier restore was told that old1 is ens9, and the checkpoints name that now: say --parent ens9=eth1"},
		"without any checkpoint": {map[string]string{"eth0": "eth1"}, nil,
			"--parent eth0=eth1: no checkpoint has a parent or bond member eth0; there is none that names a device of the host"},
	} {
		got := ""
		if err := checkMapped(test.mapped, test.records, renamed); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	broken := errors.New("no such luck")
	err := checkMapped(map[string]string{"old0": "eth0"}, records, func(string) (string, error) { return "", broken })
	if !errors.Is(err, broken) {
		t.Errorf("notes that can't be read: %v", err)
	}
}

// The user can repeat a mapping with each restore, even after the checkpoints were rewritten. A dry run remembers
// nothing.
func TestAParentThatIsSaidAgain(t *testing.T) {
	p := newLiveSandbox(t)
	fresh.Run(t, "", "ip link del lan0; ip link add new0 type veth peer name new1; ip link set new0 up; ip link set new1 up")
	t.Cleanup(func() { fresh.Run(t, "", "ip link del new0"); parent(t) })
	opts := Options{Store: p.store, ParentOptions: ParentOptions{Mapped: map[string]string{"lan0": "new0"}}}
	dry := opts
	dry.DryRun = true
	must(Run(t.Context(), dry))(t)
	if is := must(p.store.RenamedTo("lan0"))(t); is != "" {
		t.Errorf("a dry run has noted that lan0 is %s", is)
	}
	for _, want := range []State{Restored, AsRecorded, AsRecorded} {
		p.expectOutcome(t, must(Run(t.Context(), opts))(t).Attachments[0], want)
		if names := must(p.store.Load("c1", "eth0"))(t).Interface.Parents; names[0].Name != "new0" {
			t.Errorf("the checkpoint has %+v", names)
		}
		p.save(t, "eth0", "eth0") // This is what relink capture --refresh does.
	}
	opts.Mapped = map[string]string{"lam0": "new0"}
	if _, err := Run(t.Context(), opts); err == nil || !strings.HasSuffix(err.Error(), "no checkpoint has a parent or bond member lam0; they have: new0") {
		t.Errorf("a typo: %v", err)
	}
	opts.Mapped = map[string]string{"lan0": "lan0"}
	if _, err := Run(t.Context(), opts); err == nil || !strings.HasSuffix(err.Error(), "say --parent new0=lan0") {
		t.Errorf("taken back: %v", err)
	}
}

// If the note cannot be written, the restore goes on.
func TestAParentThatCannotBeNoted(t *testing.T) {
	r := &restoreRun{Options: Options{Store: checkpoint.OpenStore("/proc/nowhere"), ParentOptions: ParentOptions{Mapped: map[string]string{"lan0": "new0", "same": "same"}}}}
	r.noteMapped()
	if len(r.notes) != 1 || !slices.ContainsFunc(r.notes, func(n string) bool { return strings.HasSuffix(n, "do not say --parent lan0=new0 again") }) {
		t.Errorf("notes %q", r.notes)
	}
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
	p.expectOutcome(t, must(Run(t.Context(), opts))(t).Attachments[0], ToRestore)
	time.AfterFunc(detachDelay/2, func() { _ = p.store.Forget("c1", "eth0") })
	if report := must(Run(t.Context(), opts))(t); len(report.Attachments) > 0 {
		t.Errorf("%+v", report.Attachments)
	}
}
