package guard

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The real agent restores nothing while the command runs, although the NIC is back. Afterwards it goes on.
func TestTheAgentWaitsForTheGuard(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	var log bytes.Buffer
	agent := exec.Command(filepath.Join(bin, "relink-agent"), "--host-grace", "0s")
	agent.Env, agent.Stdout, agent.Stderr = h.env, &log, &log
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	says := func() string {
		out, _ := h.status(t, h.relink("status"))
		_, after, _ := strings.Cut(out, "AGENT\n")
		return after
	}
	eventually(t, "the agent sees the pod", func() bool { return strings.Contains(says(), ": 1 base whole") })
	meanwhile := reload + `; ip link set lan0 up; sleep 1; nsenter --net="` + h.pod + `" ip -o link show eth0 && exit 9; exit 0`
	contains(t, h.guard(t, 0, meanwhile), "relink-agent is paused", "restored or repaired 1 attachment", "relink-agent goes on", "everything is back")
	eventually(t, "the agent goes on", func() bool {
		s := says()
		return strings.Contains(s, ": 1 base whole") && !strings.Contains(s, "paused")
	})
	h.whole(t, "active")
	_ = agent.Process.Signal(syscall.SIGTERM)
	if err := agent.Wait(); err != nil {
		t.Errorf("the agent: %v\n%s", err, &log)
	}
}
