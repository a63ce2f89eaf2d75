package debian

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/native"
)

// packages is the directory of the packages, beside the programs.
const packages = "../../bin/test-packages"

// makePackages makes a release in the directory, and packages of it as two versions.
func makePackages(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	programs := filepath.Join(dir, "../test")
	if err := binaries.Build(programs); err != nil {
		return err
	}
	// The plugins, which are not run here, are small, and nothing is compressed.
	script := `set -e
		mkdir -p "$1/man" "$1/completion"
		for p in relink relink-agent; do ln "$2/$p" "$1/$p"; done
		for p in relink-macvlan relink-vlan relink-ipam relink-checkpoint relink-host-access; do echo "$p" >"$1/$p"; done
		for s in bash zsh fish; do "$1/relink" completion $s >"$1/completion/relink.$s"; done
		echo '.TH relink 8' >"$1/man/relink.8"
		for v in v1.0.0-rc1 v1.0.0; do ../../hack/package $v "$1" none; done`
	if out, err := exec.Command("sh", "-c", script, "sh", dir, programs).CombinedOutput(); err != nil {
		return fmt.Errorf("make the packages: %w\n%s", err, out)
	}
	return nil
}

// must runs a shell command line and returns its output.
func must(t *testing.T, line string) string {
	t.Helper()
	out, err := exec.Command("sh", "-ec", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

func agentIs(t *testing.T, active, enabled string) {
	t.Helper()
	out, _ := exec.Command("sh", "-c", "systemctl is-active relink-agent; systemctl is-enabled relink-agent").CombinedOutput()
	got := strings.Fields(string(out))
	if len(got) < 2 || got[0] != active || got[1] != enabled {
		t.Errorf("the agent is %q, want %s and %s", got, active, enabled)
	}
}

func TestPackage(t *testing.T) {
	debs, err := filepath.Abs(packages)
	if err != nil {
		t.Fatal(err)
	}
	if !native.Inside() {
		if err := makePackages(debs); err != nil {
			t.Fatal(err)
		}
		native.Run(t, debs)
		return
	}
	// Images of containers have a policy that lets no package start a service. This machine may have relink. Without auto-update, no
	// change of a package has mandb(8) read all pages of the machine.
	must(t, "rm -rf /var/lib/man-db/auto-update /usr/sbin/policy-rc.d /etc/default/relink-agent /var/lib/cni/relink /var/lib/relink")
	pid := func() string { return must(t, "systemctl show -P MainPID relink-agent") }

	// Two installers would hide each other's files.
	must(t, "mkdir -p /var/lib/relink && touch /var/lib/relink/installed.json")
	out := must(t, "! dpkg --force-unsafe-io -i "+debs+"/relink_1.0.0~rc1_amd64.deb 2>&1")
	if !strings.Contains(out, "run 'relink uninstall --force' first") {
		t.Errorf("beside relink install: %s", out)
	}
	must(t, "rm /var/lib/relink/installed.json; ! test -e /usr/sbin/relink")

	must(t, "dpkg --force-unsafe-io -i "+debs+"/relink_1.0.0~rc1_amd64.deb")
	agentIs(t, "active", "enabled")
	must(t, "test -x /opt/cni/bin/relink-macvlan && test -x /usr/lib/cni/relink-ipam && relink version && test -e /usr/share/man/man8/relink.8.gz")
	must(t, `test "$(readlink /proc/`+pid()+`/exe)" = /usr/sbin/relink-agent`)

	// An upgrade keeps what the administrator has set, and restarts the agent.
	must(t, `echo 'RELINK_AGENT_ARGS="--log-level debug"' >>/etc/default/relink-agent
		mkdir -p /run/relink/checkpoints/c1 /var/lib/cni/relink/ipam && echo kept >/run/relink/checkpoints/c1/kept`)
	before := pid()
	must(t, "dpkg --force-unsafe-io -i "+debs+"/relink_1.0.0_amd64.deb")
	agentIs(t, "active", "enabled")
	if after := pid(); after == before {
		t.Errorf("the agent was not restarted: it is process %s", after)
	}
	must(t, "tr '\\0' ' ' </proc/"+pid()+"/cmdline | grep -q -e '--log-level debug'")

	must(t, "systemctl disable relink-agent")
	out = must(t, "dpkg -r relink 2>&1")
	if !strings.Contains(out, "relink: pods of this node may still need the plugins") {
		t.Errorf("the removal does not warn: %s", out)
	}
	if exec.Command("systemctl", "is-active", "-q", "relink-agent").Run() == nil {
		t.Error("the agent outlives the package")
	}
	must(t, "! test -e /usr/sbin/relink-agent && ! test -e /opt/cni/bin/relink-vlan")
	must(t, "test -e /etc/default/relink-agent && test -e /run/relink/checkpoints/c1/kept")

	// What was disabled stays disabled.
	must(t, "dpkg --force-unsafe-io -i "+debs+"/relink_1.0.0_amd64.deb")
	agentIs(t, "inactive", "disabled")
	must(t, "dpkg -P relink")
	must(t, "! test -e /etc/default/relink-agent && ! test -e /run/relink && ! test -e /var/lib/cni/relink && ! test -e /usr/lib/cni/relink-ipam")
	if left := must(t, "find /etc/systemd /var/lib/systemd/deb-systemd-helper* -name '*relink*' 2>/dev/null || true"); left != "" {
		t.Errorf("left are %s", left)
	}
}
