package restore

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
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

// An exchange of names for only some of the checkpoints could never be finished.
func TestAnExchangeIsForAllPods(t *testing.T) {
	one, all := selection.Selection{Names: []string{"shop/web-0"}}, selection.Selection{}
	for name, test := range map[string]struct {
		mapped map[string]string
		by     selection.Selection
		before string
		want   string
	}{
		"all":                  {map[string]string{"lan0": "lan2", "lan2": "lan0"}, all, "", ""},
		"after another one":    {map[string]string{"lan0": "lan2", "lan2": "lan0"}, all, "lan0=lan4 lan4=lan0", ""},
		"one pod, no exchange": {map[string]string{"lan0": "lan2"}, one, "lan0=lan2", ""},
		"said of itself":       {map[string]string{"lan0": "lan2", "lan2": "lan2", "lan1": "lan1"}, one, "", ""},
		"a second time": {map[string]string{"lan0": "lan2", "lan2": "lan0", "lan1": "lan1"}, all, "lan0=lan2 lan2=lan0",
			"--parent lan0=lan2 together with --parent lan2=lan0 was said before: the checkpoints that it has reached name the new devices, and a second time would change them once more. " +
				"If all pods were restored: relink restore. For a pod that it did not reach: relink restore --parent lan0=lan2 POD. To exchange all once more: remove /run/note first"},
		"one pod": {map[string]string{"lan0": "lan2", "lan2": "lan0"}, one, "",
			"--parent lan0=lan2 together with --parent lan2=lan0 changes the meaning of lan2, so it has to be for all pods at once: restore without shop/web-0"},
		"a chain": {map[string]string{"lan0": "lan2", "lan2": "lan4"}, selection.Selection{Parent: "lan0", Namespace: "shop"}, "",
			"--parent lan0=lan2 together with --parent lan2=lan4 changes the meaning of lan2, so it has to be for all pods at once: restore without --namespace shop --parent lan0"},
	} {
		got := ""
		if err := checkExchange(test.mapped, test.by, test.before, "/run/note"); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	p := newLiveSandbox(t)
	before := must(p.store.Load("c1", "eth0"))(t)
	opts := Options{Store: p.store, Select: selection.Selection{Names: []string{"c1"}}, ParentOptions: ParentOptions{Mapped: map[string]string{"lan0": "lan1", "lan1": "lan0"}}}
	if _, err := Run(t.Context(), opts); err == nil || !strings.HasSuffix(err.Error(), "restore without c1") {
		t.Errorf("an exchange for one sandbox: %v", err)
	}
	if after := must(p.store.Load("c1", "eth0"))(t); after.Interface.Parents[0].Name != before.Interface.Parents[0].Name {
		t.Errorf("the checkpoint was changed: %+v", after.Interface.Parents)
	}
}

// Said a second time, an exchange would put the pods on the wrong devices: the checkpoints name the new ones by then.
func TestAnExchangeIsSaidOnce(t *testing.T) {
	p := newLiveSandbox(t)
	p.attach(t, "net1", 2)
	second := must(p.store.Load("c1", "net1"))(t)
	second.Interface.Parents[0].Name = "lan1"
	if err := p.store.Save(second); err != nil {
		t.Fatal(err)
	}
	fresh.IP(t, "", "link del lan0")
	parent(t)
	opts := Options{Store: p.store, ParentOptions: ParentOptions{Mapped: map[string]string{"lan0": "lan1", "lan1": "lan0"}}}
	dry := opts
	dry.DryRun = true
	must(Run(t.Context(), dry))(t)
	if report := must(Run(t.Context(), opts))(t); !report.AsRecorded() {
		t.Errorf("%+v", report)
	}
	names := func() string {
		return must(p.store.Load("c1", "eth0"))(t).Interface.Parents[0].Name + " " + must(p.store.Load("c1", "net1"))(t).Interface.Parents[0].Name
	}
	if names() != "lan1 lan0" {
		t.Errorf("the checkpoints have %s", names())
	}
	fresh.IP(t, "", "link del lan0")
	parent(t)
	for _, again := range []Options{opts, dry} {
		if _, err := Run(t.Context(), again); err == nil || !strings.Contains(err.Error(), "was said before") {
			t.Errorf("said again: %v", err)
		}
	}
	if report := must(Run(t.Context(), Options{Store: p.store}))(t); !report.AsRecorded() || names() != "lan1 lan0" {
		t.Errorf("the checkpoints have %s\n%+v", names(), report)
	}
	if err := os.Remove(p.store.ExchangedPath()); err != nil {
		t.Error(err)
	}
	fresh.IP(t, "", "link del lan0")
	parent(t)
	if report := must(Run(t.Context(), opts))(t); !report.AsRecorded() || names() != "lan0 lan1" {
		t.Errorf("the checkpoints have %s\n%+v", names(), report)
	}
}

// A pod that an exchange did not reach must not be restored onto its old device.
func TestAnExchangeNamesWhatItDidNotReach(t *testing.T) {
	mapped := map[string]string{"lan0": "lan2", "lan2": "lan0"}
	failed := &Outcome{State: Failed, Pod: attachment.Pod{Namespace: "shop", Name: "web-0"}}
	for name, test := range map[string]struct {
		mapped   map[string]string
		outcomes []*Outcome
		problem  bool
	}{
		"all reached": {mapped, []*Outcome{{State: Restored}, {State: SandboxGone}}, false},
		"one failed":  {mapped, []*Outcome{{State: Restored}, failed, failed}, true},
		"one device":  {map[string]string{"lan0": "lan2"}, []*Outcome{failed}, false},
	} {
		r := &restoreRun{Options: Options{ParentOptions: ParentOptions{Mapped: test.mapped}}}
		const want = "such as relink restore --parent lan0=lan2 shop/web-0"
		if problem := r.exchangeProblem(test.outcomes); (problem != "") != test.problem || test.problem && !strings.HasSuffix(problem, want) {
			t.Errorf("%s: %q", name, problem)
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
