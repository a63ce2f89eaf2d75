package install

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
)

// release makes the directory of a release whose programs have this content.
func release(t *testing.T, content string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range slices.Concat(plugins, programs, []string{"man/relink.8", "man/relink-check.8"}) {
		write(t, filepath.Join(dir, name), name+" "+content)
	}
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o755)); err != nil {
		t.Fatal(err)
	}
}

func options(from, root string) Options {
	return Options{SourceDir: from, Root: root, CNIBin: DefaultCNIBin, Completions: map[string][]byte{"bash": []byte("complete")}}
}

func makePlan(t *testing.T, o Options) *Plan {
	t.Helper()
	p, err := o.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func runInstall(t *testing.T, o Options) {
	t.Helper()
	if err := makePlan(t, o).Apply(); err != nil {
		t.Fatal(err)
	}
}

// filesBelow returns all files below the directory, with their modes.
func filesBelow(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	modes := map[string]fs.FileMode{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		modes[strings.TrimPrefix(path, dir)] = info.Mode()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return modes
}

func actions(p *Plan) map[FileAction]int {
	counts := map[FileAction]int{}
	for _, s := range p.Steps {
		counts[s.Action]++
	}
	return counts
}

func TestInstallUpgradeUninstall(t *testing.T) {
	root := t.TempDir()
	first, second := release(t, "1"), release(t, "2")
	write(t, filepath.Join(root, "opt/cni/bin/bridge"), "another's")
	runInstall(t, options(first, root))
	got := filesBelow(t, root)
	for path, mode := range map[string]fs.FileMode{
		"/opt/cni/bin/relink-macvlan": 0o755, "/opt/cni/bin/relink-ipam": 0o755, "/usr/local/sbin/relink": 0o755, "/usr/local/sbin/relink-agent": 0o755,
		"/usr/local/lib/systemd/network/00-relink.network": 0o644, "/etc/NetworkManager/conf.d/relink.conf": 0o644,
		"/usr/local/lib/systemd/system/relink-agent.service": 0o644, "/usr/local/share/man/man8/relink-check.8": 0o644,
		"/usr/local/share/bash-completion/completions/relink": 0o644, "/var/lib/relink/installed.json": 0o600,
	} {
		if got[path] != mode {
			t.Errorf("%s has mode %v, want %v", path, got[path], mode)
		}
	}
	if p := makePlan(t, options(first, root)); p.Changes() || actions(p)[Keep] != 13 {
		t.Errorf("a second run: %v", p.Steps)
	}

	if err := os.Remove(filepath.Join(second, "man/relink-check.8")); err != nil {
		t.Fatal(err)
	}
	upgrade := makePlan(t, options(second, root))
	if a := actions(upgrade); a[Replace] != 8 || a[Remove] != 1 || a[Keep] != 4 {
		t.Errorf("an upgrade: %v", upgrade.Steps)
	}
	if err := upgrade.Apply(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "usr/local/sbin/relink")); string(b) != "relink 2" {
		t.Errorf("relink is %q, %v", b, err)
	}

	write(t, filepath.Join(root, "usr/local/share/man/man8/relink.8"), "changed")
	write(t, filepath.Join(root, "usr/local/share/man/man8/another.8"), "another's")
	plan, err := options("", root).PlanUninstall()
	if err != nil || plan.Apply() != nil {
		t.Fatal(err)
	}
	rest := filesBelow(t, root)
	if len(rest) != 2 || rest["/opt/cni/bin/bridge"] == 0 || rest["/usr/local/share/man/man8/another.8"] == 0 {
		t.Errorf("left are %v", rest)
	}
	if _, err := options("", root).PlanUninstall(); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("a second uninstall: %v", err)
	}
}

// A run is killed before each step. A later run knows all files that the killed run has left.
func TestKilledAnywhere(t *testing.T) {
	first, second := release(t, "1"), release(t, "2")
	if err := os.Remove(filepath.Join(second, "man/relink-check.8")); err != nil {
		t.Fatal(err)
	}
	steps := len(makePlan(t, options(first, t.TempDir())).Steps)
	for killed := range steps {
		root := t.TempDir()
		runInstall(t, options(first, root))
		p := makePlan(t, options(second, root))
		if err := p.saveManifest(true, true); err != nil {
			t.Fatal(err)
		}
		for _, s := range p.Steps[:killed] {
			if s.Action != Remove {
				write(t, inRoot(root, s.Path), "new")
			}
		}
		switch killed % 2 {
		case 0:
			runInstall(t, options(second, root))
			if plan := makePlan(t, options(second, root)); plan.Changes() {
				t.Errorf("killed before step %d: %v", killed, plan.Steps)
			}
		case 1:
			plan, err := options("", root).PlanUninstall()
			if err != nil || plan.Apply() != nil {
				t.Fatal(err)
			}
			if rest := filesBelow(t, root); len(rest) > 0 {
				t.Errorf("killed before step %d, and %v stay", killed, rest)
			}
		}
	}
}

// An installation is killed before it restarts the agent. The next run has no file to change, and still restarts the
// agent.
func TestTheAgentIsRestartedAfterAKill(t *testing.T) {
	root := t.TempDir()
	o := options(release(t, "1"), root)
	if p := makePlan(t, o); !p.NeedsRestart() || p.Apply() != nil || p.SaveStarted() != nil {
		t.Error("the first installation")
	}
	if p := makePlan(t, o); p.NeedsRestart() || p.Apply() != nil {
		t.Error("the same once more")
	}
	o = options(release(t, "2"), root)
	if p := makePlan(t, o); !p.NeedsRestart() || p.Apply() != nil {
		t.Error("an upgrade")
	}
	p := makePlan(t, o)
	if p.Changes() || !p.NeedsRestart() || p.Apply() != nil || p.SaveStarted() != nil {
		t.Errorf("after a kill: changes %v", p.Changes())
	}
	if makePlan(t, o).NeedsRestart() {
		t.Error("restarted already")
	}
}

// All users can read new directories, whatever the umask says.
func TestUmask(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	runInstall(t, options(release(t, "1"), root))
	for _, dir := range []string{"opt/cni/bin", "opt", "usr/local/share/man/man8", "usr/local/share/man", "usr/local/lib/systemd/system"} {
		if info, err := os.Stat(filepath.Join(root, dir)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
	if info, err := os.Stat(root); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a directory that was there: %v, %v", info.Mode(), err)
	}
}

func TestBesideAPackage(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "usr/sbin/relink-agent"), "of a package")
	o := options(release(t, "1"), root)
	if _, err := o.Plan(); err == nil || !strings.Contains(err.Error(), root+"/usr/sbin/relink-agent is there: a package has put relink on this node") {
		t.Errorf("beside a package: %v", err)
	}
	o.PluginsOnly = true
	runInstall(t, o)
	o.Force, o.PluginsOnly = true, false
	runInstall(t, o)
}

// What somebody else has put in the place of a file is replaced: a file with other content or another mode, and a link.
func TestWhatIsInTheWayIsReplaced(t *testing.T) {
	root := t.TempDir()
	o := options(release(t, "1"), root)
	unit, relink, ipam := inRoot(root, filepath.Join(unitDir, Unit)), inRoot(root, "usr/local/sbin/relink"), inRoot(root, "opt/cni/bin/relink-ipam")
	runInstall(t, o)
	write(t, unit, "changed")
	if err := errors.Join(os.Chmod(relink, 0o700), os.Remove(ipam), os.Symlink(relink, ipam)); err != nil {
		t.Fatal(err)
	}
	plan := makePlan(t, o)
	if a := actions(plan); a[Replace] != 3 || plan.Apply() != nil {
		t.Errorf("%v", plan.Steps)
	}
	if plan := makePlan(t, o); plan.Changes() {
		t.Errorf("once more: %v", plan.Steps)
	}
}

func TestPluginsOnly(t *testing.T) {
	root := t.TempDir()
	o := Options{SourceDir: release(t, "1"), Root: root, CNIBin: "/bin", PluginsOnly: true}
	write(t, filepath.Join(root, "bin/relink-vlan"), "of another version")
	runInstall(t, o)
	got := filesBelow(t, root)
	if len(got) != 5 || got["/bin/relink-vlan"] != 0o755 {
		t.Errorf("%v", got)
	}
	if plan := makePlan(t, o); plan.Changes() {
		t.Errorf("a second run: %v", plan.Steps)
	}
}

func TestErrorsNameThePath(t *testing.T) {
	from := release(t, "1")
	if err := os.Remove(filepath.Join(from, "relink-vlan")); err != nil {
		t.Fatal(err)
	}
	_, err := options(from, t.TempDir()).Plan()
	if err == nil || !strings.Contains(err.Error(), from+"/relink-vlan: no such file") || !strings.Contains(err.Error(), "--from") {
		t.Errorf("without a program: %v", err)
	}
	from = release(t, "1")
	for manifest, want := range map[string]string{
		`{"version":1,"fil`: ": unexpected end", `{"version":2}`: " has version 2, and this relink knows only 1",
	} {
		root := t.TempDir()
		write(t, root+manifestPath, manifest)
		if _, err := options(from, root).Plan(); err == nil || !strings.Contains(err.Error(), root+manifestPath+want) {
			t.Errorf("%s: %v", manifest, err)
		}
	}
	root := t.TempDir()
	write(t, filepath.Join(root, "opt"), "a file")
	if _, err := options(from, root).Plan(); err == nil || !strings.Contains(err.Error(), root+"/opt/cni/bin/relink-macvlan") {
		t.Errorf("a file for a directory: %v", err)
	}
}

func TestPurge(t *testing.T) {
	checkpoints, leases := filepath.Join(t.TempDir(), "relink/checkpoints"), filepath.Join(t.TempDir(), "relink/ipam")
	write(t, filepath.Join(checkpoints, "c/eth0.json"), "{}")
	write(t, filepath.Join(leases, "pods.db"), "")
	t.Setenv("RELINK_IPAM_DIR", leases)
	other := filepath.Join(leases, "networks/lan/10.3.0.2")
	write(t, other, "host-local's")
	deleted, err := Purge(checkpoint.OpenStore(checkpoints))
	if !errors.Is(err, ErrForeign) || len(deleted) > 0 || !strings.Contains(err.Error(), leases+" has other files in it, such as "+leases+"/networks") {
		t.Errorf("a directory of others: %v, %v", deleted, err)
	}
	if err := os.RemoveAll(filepath.Join(leases, "networks")); err != nil {
		t.Fatal(err)
	}
	deleted, err = Purge(checkpoint.OpenStore(checkpoints))
	if err != nil || !slices.Equal(deleted, []string{checkpoints, leases}) {
		t.Errorf("%v, %v", deleted, err)
	}
	if deleted, err = Purge(checkpoint.OpenStore(checkpoints)); err != nil || len(deleted) > 0 {
		t.Errorf("again: %v, %v", deleted, err)
	}
}
