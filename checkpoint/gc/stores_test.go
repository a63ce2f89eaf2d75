package gc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/test/fresh"
)

// manyStores is a node whose configurations keep leases in three directories: the default one, one of a file, one that only
// a checkpoint knows. Each has one reservation whose owner is gone.
func manyStores(t *testing.T) (n *node, dirs [3]string, confDir string) {
	t.Helper()
	n = newNode(t)
	for i := range dirs {
		dirs[i] = t.TempDir()
		n.leases = store(t, dirs[i], "lan")
		n.reserve(t, web(i))
		n.standing[web(i)] = owner.Gone
	}
	t.Setenv(lease.DirEnv, dirs[0])
	confDir = t.TempDir()
	write(t, filepath.Join(confDir, "00-multus.conf"), `{"type": "multus", "delegates": [{"name": "lan", "plugins": [
		{"type": "macvlan", "ipam": {"type": "relink-ipam", "dataDir": "`+dirs[1]+`/"}}, {"type": "tuning"}]}]}`)
	write(t, filepath.Join(confDir, "99-other.conflist"), `{"plugins": [{"type": "macvlan", "ipam": {"type": "host-local", "dataDir": "/nobody"}}]}`)
	write(t, filepath.Join(confDir, "98-other.conflist"), `{"delegates": {}, "plugins": [{"type": "other", "ipam": ["x"]}, {"type": "more", "ipam": {"dataDir": 1}}]}`)
	write(t, filepath.Join(confDir, "README"), `no configuration`)
	at, err := identity.Read(fresh.Sandbox(t))
	if err != nil {
		t.Fatal(err)
	}
	err = n.store.Save(checkpoint.Record{
		Attachment: attachment.Key{Network: "lan", ContainerID: "c9", IfName: "eth0"}, Namespace: at, CapturedAt: time.Now().UTC(), Writer: "test",
		CNI: checkpoint.CNI{Config: []byte(`{"ipam": {"type": "relink-ipam", "dataDir": "` + dirs[2] + `"}}`), Result: []byte("{}")},
		Interface: netstate.Interface{
			Link:    netstate.Link{Kind: netstate.KindMacvlan, Name: "eth0", MAC: "02:00:00:00:00:05", MTU: 1500, Macvlan: &netstate.Macvlan{Mode: "bridge"}},
			Parents: []netstate.Device{{Kind: netstate.KindNIC, Name: "lan0", MTU: 1500}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return n, dirs, confDir
}

// replace replaces a variable until the end of the test.
func replace[T any](t *testing.T, variable *T, value T) {
	before := *variable
	*variable = value
	t.Cleanup(func() { *variable = before })
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// passOf makes a pass over the directory only, as relink gc --data-dir does, or over all that it finds, as the agent does.
func (n *node) passOf(t *testing.T, only, confDir string) PassReport {
	t.Helper()
	o := n.options()
	o.Leases = nil
	replace(t, &audit.ConfDirs, []string{confDir})
	if err := o.OpenLeases(only); err != nil {
		t.Fatal(err)
	}
	return n.pass(t, o)
}

// counts are how many things wait, and how many were freed, by their directories.
func counts(r PassReport, dirs [3]string) (said string) {
	for _, dir := range dirs {
		for _, o := range r.Outcomes {
			if o.LeaseDir == dir {
				said += string(o.State) + " "
			}
		}
		said += "| "
	}
	return said
}

// The leases of each directory that a configuration or a checkpoint names are freed.
func TestLeasesInOtherDirectories(t *testing.T) {
	n, dirs, confDir := manyStores(t)
	if got := counts(n.passOf(t, "", confDir), dirs); got != "waiting | waiting | waiting | " {
		t.Errorf("the first pass: %s", got)
	}
	r := n.passOf(t, "", confDir)
	if got := counts(r, dirs); got != "freed | freed | freed | " || !r.Complete() {
		t.Errorf("the second pass: %s %q", got, r.Problems)
	}
}

// Passes over different directories know nothing of each other, and keep what the others have seen.
func TestPassesOverDifferentDirectories(t *testing.T) {
	n, dirs, confDir := manyStores(t)
	for i, step := range []struct{ only, want string }{
		{"", "waiting | waiting | waiting | "},
		{dirs[1], "| freed | | "},
		{dirs[0], "freed | | | "},
		{"", "| | freed | "},
	} {
		if got := counts(n.passOf(t, step.only, confDir), dirs); got != step.want {
			t.Errorf("pass %d: %s, want %s", i, got, step.want)
		}
	}
}

// A file that nobody can read is told, and the rest goes on. So is a directory that no store can be in.
func TestAConfigurationThatCannotBeRead(t *testing.T) {
	n, dirs, confDir := manyStores(t)
	write(t, filepath.Join(confDir, "50-torn.conf"), `{"ipam": `)
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	write(t, filepath.Join(confDir, "60.conf"), `{"ipam": {"type": "relink-ipam", "dataDir": "`+file+`"}}`)
	write(t, filepath.Join(confDir, "70.conf"), `{"ipam": {"type": "relink-ipam", "dataDir": "/nothing/yet"}}`)
	r := n.passOf(t, "", confDir)
	if got := counts(r, dirs); got != "waiting | waiting | waiting | " {
		t.Error(got)
	}
	if len(r.Problems) != 2 || !strings.Contains(r.Problems[0], "50-torn.conf") || !strings.Contains(r.Problems[1], file) {
		t.Errorf("%q", r.Problems)
	}
}
