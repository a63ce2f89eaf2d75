package capture_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/test/fresh"
)

// A run that changes something is written to the log of the node. A run that only looks is not.
func TestRunsAreLogged(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	dev := t.TempDir()
	daemon, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dev, "log"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = daemon.Close() }()
	// relink gets a /dev of its own that has nothing but the log.
	run := func(args string) {
		t.Helper()
		relink := n.Command(strings.Fields(args)...).Args
		cmd := exec.Command("unshare", append([]string{"-m", "sh", "-c", `mount --bind "$0" /dev && exec "$@"`, dev}, relink...)...)
		cmd.Env = append(os.Environ(), "SUDO_USER=anna")
		if out, err := cmd.CombinedOutput(); cmd.ProcessState == nil || len(out) == 0 {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
	}
	n.cnitool(t, "add", "stock", "web", netns)
	run("check")
	run("capture --dry-run")
	run("capture")
	n.LoseParent(t)
	run("restore --dry-run")
	run("restore")
	fresh.IP(t, netns, "link del eth0")
	run("capture --refresh")
	run("forget nobody --yes")
	run("forget default/web --yes")
	run("import " + n.conf)

	started := regexp.MustCompile(`^<(\d+)>.*relink\[\d+\]: (.*?)(?: in [^ ,]+)?(?:, [^ ]+ of it waiting for devices and carrier)?; run by root \(sudo by anna\) in .*: \S+/relink --checkpoint-dir \S+ (.*)\n$`)
	failed := regexp.MustCompile(`^<(\d+)>.*relink\[\d+\]: (failed: .*)\n$`)
	var got []string
	for _, line := range received(t, daemon) {
		if m := started.FindStringSubmatch(line); m != nil {
			got = append(got, strings.Join(m[1:], "|"))
		} else if m := failed.FindStringSubmatch(line); m != nil {
			reason := regexp.MustCompile(`cnitool-[0-9a-f]+`).ReplaceAllString(m[2], "ID")
			got = append(got, m[1]+"|"+strings.ReplaceAll(reason, netns, "NETNS"))
		} else {
			t.Errorf("%q", line)
		}
	}
	want := []string{
		"29|1 captured|capture",
		"29|1 restored|restore",
		"28|1 refused|capture --refresh",
		"28|failed: default/web eth0 (ID): eth0 is gone from the sandbox: relink restore brings it back",
		"29|1 kept|forget default/web --yes",
		"27|nothing was done: invalid --parent \"\": does not exist: name a device that is there|import " + n.conf,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +logged):\n%s", diff)
	}
}

func received(t *testing.T, daemon *net.UnixConn) []string {
	t.Helper()
	if err := daemon.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	var lines []string
	b := make([]byte, 1<<16)
	for {
		size, err := daemon.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(b[:size]))
	}
}
