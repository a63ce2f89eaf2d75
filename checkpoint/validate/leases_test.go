package validate

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
)

// chainsWithLeases is a network whose leases are in the directory.
func chainsWithLeases(t *testing.T, dataDir string) []chain {
	t.Helper()
	chains, wrong := readChains([]Network{{File: "10.conf", Config: []byte(`{"name": "pods", "type": "macvlan", "cniVersion": "1.1.0",
		"ipam": {"type": "relink-ipam", "subnet": "10.3.0.0/24", "dataDir": "` + dataDir + `"}}`)}})
	if len(wrong) > 0 {
		t.Fatal(lines(wrong))
	}
	return chains
}

// judgeLeases looks at the stores of leases alone.
func judgeLeases(chains []chain) []ConfigFinding {
	leases := chain{plugins: []plugin{chains[0].plugins[0]}}
	leases.plugins[0].needs = []need{leases.plugins[0].leases}
	return judgeNode(chains, probeNode([]chain{leases}, nil))
}

func TestADirectoryInWhichNoLeaseCanBeWritten(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", "")
	write(t, dir+"/leases/pods.db", "")
	const invalid = `10.conf: macvlan: error: invalid "ipam.dataDir": `
	for dataDir, want := range map[string][]string{
		dir:              nil,
		dir + "/not/yet": nil,
		dir + "/leases":  nil,
		dir + "/file":    {invalid + `"d/file": no lease can be written there: d/file is not a directory`},
		"/proc/y":        {invalid + `"/proc/y": no lease can be written there: /proc: no such file or directory`},
	} {
		chains := chainsWithLeases(t, dataDir)
		got := lines(judgeLeases(chains))
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], dir, "d")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", dataDir, diff)
		}
	}
	var left []string
	for _, pattern := range []string{"/*", "/*/*", "/.*"} {
		found, err := filepath.Glob(dir + pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	if want := []string{dir + "/file", dir + "/leases", dir + "/leases/pods.db"}; !cmp.Equal(want, left) {
		t.Errorf("left: %v", left)
	}
}

// relink-ipam runs as root. It may write where another user may not.
func TestLeasesThatOnlyRootMayWrite(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "validate") // Only root can enter a directory of t.TempDir.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	chains := chainsWithLeases(t, dir)
	fresh.AsNobody(t, func() {
		want := []string{"this node: warning: not looked at: whether a lease can be written: " + dir + ": permission denied: run as root"}
		if diff := cmp.Diff(want, lines(judgeLeases(chains))); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestADirectoryOfLeasesInTheEnvironment(t *testing.T) {
	t.Setenv("RELINK_IPAM_DIR", "leases")
	want := []string{`10.conflist: plugins[0] relink-macvlan: error: invalid RELINK_IPAM_DIR: "leases": must be an absolute path`}
	if diff := cmp.Diff(want, findingsOf(t, "10.conflist", list(good))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A network got another name, and its configuration does not name the store with the leases of its pods.
func TestAnEmptyStoreBesideOneWithLeasesOfTheRanges(t *testing.T) {
	dir := t.TempDir()
	allocate := func(network, address string) {
		t.Helper()
		store, err := lease.Open(dir, network)
		if err != nil {
			t.Fatal(err)
		}
		a := netip.MustParseAddr(address)
		set := lease.RangeSet{{Span: lease.Span{First: a, Last: a}, Subnet: netip.MustParsePrefix("10.3.0.0/24")}}
		if _, err := store.Allocate(t.Context(), lease.Request{Attachment: attachment.Key{Network: network, ContainerID: "c1", IfName: "eth0"}, Sets: []lease.RangeSet{set}}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when, keys string, want ...string) {
		t.Helper()
		chains := chainsWithLeases(t, dir+keys)
		if diff := cmp.Diff(want, lines(judgeLeases(chains))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	allocate("san", "10.4.0.2")
	expect("other ranges", "")
	allocate("lan", "10.3.0.2")
	expect("without the key", "", `10.conf: macvlan: warning: network pods begins with an empty store, and the store lan has leases of the same ranges. `+
		`If pods is a new name of that network, no ADD knows what its pods hold: add "store": "lan" to "ipam" of its configuration`)
	expect("with the key", `", "store": "lan`)
	expect("in another directory", "/other")
	allocate("pods", "10.3.0.77")
	expect("with a lease of its own", "")
}

// A store that somebody uses for long has leases. validate does not wait for it.
func TestAStoreThatIsInUse(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/pods.db", "")
	f, err := os.Open(dir + "/pods.db")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := flock.Try(f, flock.Exclusive); err != nil {
		t.Fatal(err)
	}
	chains, begin := chainsWithLeases(t, dir), time.Now()
	if found := lines(judgeLeases(chains)); len(found) > 0 {
		t.Error(found)
	}
	if waited := time.Since(begin); waited > flock.DefaultTimeout/2 {
		t.Errorf("it took %s", waited)
	}
}
