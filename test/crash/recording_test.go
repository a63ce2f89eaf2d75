package crash

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/test/fresh"
)

// keepResult writes into the CNI cache of the agent that the ADD of an interface is over, as libcni does.
func (p *pod) keepResult(t *testing.T, ifName string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"kind": "cniCacheV1", "containerId": p.id, "ifName": ifName, "networkName": "lan", "netns": p.netns, "config": []byte(`{}`),
		"cniArgs": [][2]string{{"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", p.id}}, "result": map[string]any{"cniVersion": "1.0.0"},
	})
	must(t, err)
	must(t, os.WriteFile(p.resultFile(ifName), b, 0o600))
}

// resultFile is where Multus keeps the result.
func (p *pod) resultFile(ifName string) string {
	return filepath.Join("/var/lib/cni/multus/results", p.id+"-"+ifName)
}

// runUntilDone is a script that runs the agent until the files that should be there are there, and the others are not. Then the agent, which hears
// signals before it has its socket, ends in order. The script is killed if the agent was.
const runUntilDone = `
	rm -f $SOCKET
	"$@" & pid=$!
	while kill -0 $pid 2>/dev/null; do
		if [ -e $SOCKET ] && [ -e $THERE ] && [ ! -e $GONE ] && [ ! -e $ENDED ]; then sleep 0.1; kill -TERM $pid; break; fi
		sleep 0.02
	done
	wait $pid; status=$?
	[ $status != 137 ] || kill -KILL $$
	exit $status`

// The agent records one pod, forgets what was unplugged from another, and the whole of a third that is gone. However it is killed meanwhile, the next
// agent finishes that.
func TestAgentKilledAtEveryStepOfARecording(t *testing.T) {
	n := newNode(t)
	fresh.Run(t, "", "mkdir -p /var/lib/cni; mount -t tmpfs tmpfs /var/lib/cni; mkdir -p /var/lib/cni/multus/results /var/lib/cni/results")
	t.Cleanup(func() { fresh.Run(t, "", "umount -l /var/lib/cni") })
	pods := map[string]*pod{}
	for _, id := range []string{"new", "unplugged", "ended"} {
		p := n.newPod(t, id, true)
		_, err := output(p.plugin("macvlan", "ADD", ""))
		must(t, err)
		p.keepResult(t, "eth0")
		fresh.Run(t, "", "cp "+p.resultFile("eth0")+" /var/lib/cni/results")
		pods[id] = p
	}
	capture := func(t *testing.T) {
		_, err := output(exec.Command(filepath.Join(released, "relink"), "--checkpoint-dir", n.store.Dir(), "capture"))
		must(t, err)
	}
	capture(t)
	saved := t.TempDir()
	fresh.Run(t, "", fmt.Sprintf("cp -a %s/unplugged %[1]s/ended %s; rm -r %[1]s/new", n.store.Dir(), saved))
	pods["unplugged"].keepResult(t, "eth9")
	fresh.Run(t, pods["unplugged"].netns, "ip link del eth0")
	must(t, os.Remove(pods["unplugged"].resultFile("eth0")))
	fresh.Remove(t, pods["ended"].netns)
	must(t, os.Remove(pods["ended"].resultFile("eth0")))
	fresh.Run(t, "", "rm /var/lib/cni/results/unplugged* /var/lib/cni/results/ended*")
	file := func(id string) string { return filepath.Join(n.store.Dir(), id, "eth0.json") }
	agent := func(programs string, seconds int) *exec.Cmd {
		cmd := exec.Command("sh", "-c", runUntilDone, "sh", "timeout", "--foreground", "-s", "QUIT", fmt.Sprint(seconds), filepath.Join(programs, "relink-agent"), "--checkpoint-dir", n.store.Dir(), "--runtime-endpoint", filepath.Join(n.dir, "no.sock"))
		socket := filepath.Join(n.dir, "recording.sock")
		cmd.Env = append(os.Environ(), control.SocketEnv+"="+socket, "SOCKET="+socket, "THERE="+file("new"), "GONE="+file("unplugged"), "ENDED="+file("ended"), allEnv+"=1")
		return cmd
	}
	operation{
		most: 4, // Each takes three seconds.
		prepare: func(t *testing.T) *exec.Cmd {
			fresh.Run(t, "", fmt.Sprintf("rm -rf %[1]s/new %[1]s/unplugged %[1]s/ended; cp -a %[2]s/unplugged %[2]s/ended %[1]s", n.store.Dir(), saved))
			return agent(bin, 15)
		},
		after: func(t *testing.T) {
			_, unreadable, err := n.store.List()
			if err != nil || len(unreadable) > 0 {
				t.Errorf("half a record: %v %v", err, unreadable)
			}
			out, err := agent(released, 60).CombinedOutput()
			if err != nil {
				t.Fatalf("the next agent: %v\n%s", err, out)
			}
			if records := n.records(t); len(records) != 1 || records["new eth0"].Pod.Name != "new" || records["new eth0"].Writer != "relink-agent" {
				t.Errorf("recorded: %+v", records)
			}
			if out := fresh.Run(t, "", "find "+n.store.Dir()+"/[!.]* -name '.?*' -not -name .lock"); out != "" {
				t.Errorf("temporary files are left: %s", out)
			}
		},
	}.killAtEveryStep(t)
}
