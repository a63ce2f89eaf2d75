package capture

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/selection"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// optionsOf are those of a run on the node, with a CNI cache that is empty.
func optionsOf(t *testing.T, n *testnode.Node) Options {
	t.Helper()
	cache := filepath.Join(n.Dir, "cache")
	if err := os.Mkdir(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	return Options{Store: n.Store, CacheDir: cache}
}

// unrecorded returns a sandbox with an interface eth0 on lan0.
func unrecorded(t *testing.T) string {
	t.Helper()
	netns := fresh.Sandbox(t)
	fresh.IP(t, "", "link add link lan0 name tmp0 netns "+netns+" type macvlan mode bridge")
	fresh.Run(t, netns, "ip link set tmp0 name eth0; ip link set eth0 up")
	return netns
}

// hide gives eth0 a name that no checkpoint can have. show takes the name back.
const (
	hide = `ip link set eth0 name "$(printf 'b\001d')"`
	show = `ip link set "$(printf 'b\001d')" name eth0`
)

func identityOf(t *testing.T, netns string) attachment.Namespace {
	t.Helper()
	namespace, err := kernel.Open(netns)
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	return namespace.Identity()
}

// unrecordedAfter takes the first look, then makes the change in the sandbox, then takes the second look. It returns the
// names of what is reported of the sandbox.
func unrecordedAfter(t *testing.T, opts Options, netns, script string) (names, problems []string) {
	t.Helper()
	is := identityOf(t, netns)
	found, err := FindUnrecorded(fresh.Between{Context: t.Context(), Do: func() {
		fresh.Run(t, "", "nsenter --net="+netns+" sh -c '"+strings.ReplaceAll(script, "'", `'\''`)+"'")
	}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range found {
		switch {
		case o.Namespace.File() != is.File():
		case o.State == change.Failed:
			problems = append(problems, o.Reason)
		default:
			names = append(names, o.Interface.Link.Name)
		}
	}
	return names, problems
}

// A fault that comes and goes is a fault in both looks.
func TestTheSecondLookOfMissing(t *testing.T) {
	n := testnode.New(t)
	opts := optionsOf(t, n)
	for name, test := range map[string]struct {
		before, change, name, problem string
	}{
		"as it was":                         {"true", "true", "eth0", ""},
		"could not be looked at, then can":  {hide, show, "eth0", ""},
		"can be looked at, then cannot":     {"true", hide, "", "can't be remembered"},
		"could not be looked at, and is so": {hide, "true", "", "can't be remembered"},
		"is detached meanwhile":             {"true", "ip link del eth0", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			netns := unrecorded(t)
			fresh.Run(t, netns, test.before)
			names, problems := unrecordedAfter(t, opts, netns, test.change)
			if got := strings.Join(names, " "); got != test.name {
				t.Errorf("without a checkpoint: %q, want %q", got, test.name)
			}
			if got := strings.Join(problems, "; "); (got == "") != (test.problem == "") || !strings.Contains(got, test.problem) {
				t.Errorf("problems: %q, want %q", got, test.problem)
			}
		})
	}
}

// twoPaths mounts the sandbox at a second path, and returns that path.
func twoPaths(t *testing.T, netns string) string {
	t.Helper()
	second := filepath.Join(t.TempDir(), "second")
	fresh.Run(t, "", "touch "+second+"; mount --bind "+netns+" "+second)
	t.Cleanup(func() { fresh.Remove(t, second) })
	return second
}

// Each look can find a sandbox by another of its paths.
func TestTheSecondLookFindsASandboxAtAnotherPath(t *testing.T) {
	n := testnode.New(t)
	opts := optionsOf(t, n)
	netns := unrecorded(t)
	twoPaths(t, netns)
	if names, problems := unrecordedAfter(t, opts, netns, "umount "+netns); len(names) != 1 || len(problems) > 0 {
		t.Errorf("without a checkpoint: %v, problems: %v", names, problems)
	}

	down := unrecorded(t)
	fresh.IP(t, down, "link set eth0 down")
	second := twoPaths(t, down)
	r := &captureRun{Options: opts}
	err := r.firstPass(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fresh.Run(t, "", "umount "+down)
	if err := r.recheck(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := statesIn(r, identityOf(t, second)); got != "eth0 refused" {
		t.Errorf("the run has %q", got)
	}
}

// statesIn returns the outcomes in the sandbox, one name and state after the other.
func statesIn(r *captureRun, namespace attachment.Namespace) string {
	var all []string
	for _, o := range r.actions {
		if o.Namespace.Same(namespace) == nil {
			all = append(all, o.Interface.Link.Name+" "+string(o.State))
		}
	}
	return strings.Join(all, ", ")
}

// What the first look could not look at is captured, or decided about, after the second look.
func TestTheSecondLookCaptures(t *testing.T) {
	n := testnode.New(t)
	opts := optionsOf(t, n)
	for name, test := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"really":           {func(*Options) {}, "eth0 captured"},
		"in a dry run":     {func(o *Options) { o.DryRun = true }, "eth0 to capture"},
		"and nothing else": {func(o *Options) { o.Select = selection.Selection{Parent: "other0"} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			netns, other := unrecorded(t), unrecorded(t)
			fresh.Run(t, "", "ip link add other0 type veth peer name other1; ip link set other0 up; ip link set other1 up")
			t.Cleanup(func() { fresh.IP(t, "", "link del other0") })
			fresh.IP(t, "", "link add link other0 name tmp0 netns "+other+" type macvlan mode bridge")
			fresh.Run(t, other, "ip link set tmp0 name net1; ip link set net1 up")
			fresh.Run(t, netns, hide)
			opts := opts
			test.change(&opts)
			r := &captureRun{Options: opts}
			err := r.firstPass(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			fresh.Run(t, netns, show)
			if err := r.recheck(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := statesIn(r, identityOf(t, netns)); got != test.want {
				t.Errorf("the run has %q, want %q", got, test.want)
			}
		})
	}
}

// What was written stays reported if the second look fails.
func TestASecondLookThatFailsKeepsTheReport(t *testing.T) {
	n := testnode.New(t)
	opts := optionsOf(t, n)
	up, down := unrecorded(t), unrecorded(t)
	fresh.IP(t, down, "link set eth0 down")
	r := &captureRun{Options: opts}
	err := r.firstPass(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(opts.CacheDir, "results"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err = r.recheck(t.Context())
	if got := statesIn(r, identityOf(t, up)) + ", " + statesIn(r, identityOf(t, down)); got != "eth0 captured, eth0 refused" {
		t.Errorf("the run has %q", got)
	}
	if err == nil {
		t.Error("the second look has no error")
	}
}

// An interrupt between the looks is an error, because nobody knows what the second look would have found.
func TestMissingIsInterrupted(t *testing.T) {
	n := testnode.New(t)
	opts := optionsOf(t, n)
	unrecorded(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := FindUnrecorded(ctx, opts); !errors.Is(err, context.Canceled) || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
}
