package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/node"
)

const (
	ifName = "eth0"
	// network is that of all pods.
	network = "lan"
	// longestAdd is when the container runtime of the test kills an ADD.
	longestAdd = 3500 * time.Millisecond
	// killed and refused are what a call of a plugin can come to.
	killed, refused = "killed", "refused"
)

// plugin is the plugin of the sandbox. Most sandboxes have only a lease: the interface costs most of the time of an ADD and a DEL, and
// these are about addresses. Some have an interface and a checkpoint too.
func (b *cell) plugin() string {
	if b.macvlan {
		return "relink-macvlan"
	}
	return "relink-ipam"
}

// config is the network's configuration for the sandbox.
func (c *chaos) config(b *cell, more string) string {
	plugin := `"type":"macvlan"`
	if b.macvlan {
		plugin = fmt.Sprintf(`"type":"relink-macvlan","master":"lan0","checkpointDir":%q`, c.store.Dir())
	}
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,%s%s,"ipam":{"type":"relink-ipam","dataDir":%q,"sticky":"owner","quarantine":"1s",
		"ranges":[[{"subnet":%q}]]}}`, network, plugin, more, c.leaseDir, c.pool)
}

// call runs the plugin of the sandbox. It kills it at any moment if it is to be killed. how is empty for success.
func (c *chaos) call(r *rand.Rand, b *cell, command, config string, toKill bool) (out []byte, how string) {
	c.steps.Add(1)
	cmd := exec.Command(filepath.Join(node.Bin, b.plugin()))
	cmd.Env = append(c.env, "CNI_COMMAND="+command, "CNI_CONTAINERID="+b.id, "CNI_NETNS="+b.netns, "CNI_IFNAME="+ifName, "CNI_PATH="+node.Bin, "PATH="+node.Bin,
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", b.pod.Namespace, b.pod.Name, b.pod.UID))
	cmd.Stdin = strings.NewReader(config)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	limit := longestAdd
	if toKill {
		limit = time.Duration(r.IntN(12000)) * time.Microsecond
	}
	if err := cmd.Start(); err != nil {
		c.t.Error(err)
		return nil, refused
	}
	timer := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !timer.Stop() && err != nil {
		c.count("plugins killed")
		return nil, killed
	}
	if err == nil {
		return stdout.Bytes(), ""
	}
	var said types.Error
	if json.Unmarshal(stdout.Bytes(), &said) != nil || said.Code != types.ErrTryAgainLater || command == "DEL" && !strings.Contains(said.Msg, lease.ErrBusy.Error()) {
		c.t.Errorf("%s of %s (%s): %v\n%s%s", command, b.id, b.of, err, &stdout, &stderr)
	}
	return nil, refused
}

// run makes a sandbox for the pod and attaches it, as a container runtime does. It says whether the pod runs.
func (c *chaos) run(r *rand.Rand, b *cell) bool {
	n := c.made.Add(1)
	b.id, b.netns = fmt.Sprintf("c%d", n), filepath.Join(c.dir, fmt.Sprintf("ns%d", n))
	if err := fresh.Make(b.netns); err != nil {
		c.t.Error(err)
		return false
	}
	c.truth.locked(func() { b.alive, c.truth.cells[b.id] = true, b })
	out, how := c.call(r, b, "ADD", c.config(b, ""), r.IntN(15) == 0)
	if how != "" {
		c.count("ADDs " + how)
		c.end(r, b)
		return false
	}
	a, ok := c.given(b, out)
	if !ok {
		return false
	}
	c.truth.tell(b, a)
	c.truth.locked(func() { b.runtime = "ready" })
	c.count("ADDs told")
	if !b.macvlan && r.IntN(10) == 0 {
		if out, how := c.call(r, b, "ADD", c.config(b, ""), false); how == "" {
			if again, ok := c.given(b, out); ok && again != a {
				c.t.Errorf("%s has %s, and is told %s when it asks again", b.id, a, again)
			}
		}
	}
	return true
}

// given is the address in the result of an ADD.
func (c *chaos) given(b *cell, out []byte) (netip.Addr, bool) {
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(out, &result); err != nil || len(result.IPs) != 1 {
		c.t.Errorf("the ADD of %s: %v\n%s", b.id, err, out)
		return netip.Addr{}, false
	}
	return result.IPs[0].Address.Addr(), true
}

// end ends a sandbox in any of the ways in which sandboxes end. It returns when all is over, which can take seconds.
func (c *chaos) end(r *rand.Rand, b *cell) {
	c.truth.locked(func() { b.ending = true })
	moment := func() { time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond) }
	switch r.IntN(8) {
	case 0: // The runtime loses it, without a DEL.
		c.count("DELs lost")
		c.vanish(b, "")
	case 1: // The runtime forgets it, and it is there for a while.
		c.count("DELs lost")
		c.truth.locked(func() { b.runtime = "" })
		moment()
		c.vanish(b, "")
	case 2: // The namespace goes first, and the DEL comes late.
		c.vanish(b, "stopped")
		c.rest(r)
		c.del(r, b)
	case 3: // The DEL comes when the runtime does not have it any more.
		c.vanish(b, "")
		moment()
		c.del(r, b)
	case 4: // All of it comes late.
		moment()
		c.stop(r, b)
	default:
		c.stop(r, b)
	}
	c.truth.locked(func() { b.runtime = "" })
}

// stop is as a container runtime does it.
func (c *chaos) stop(r *rand.Rand, b *cell) {
	c.del(r, b)
	c.vanish(b, "stopped")
}

// vanish takes the namespace away.
func (c *chaos) vanish(b *cell, runtime string) {
	c.steps.Add(1)
	c.truth.locked(func() { b.alive, b.died, b.runtime = false, time.Now(), runtime })
	fresh.Remove(c.t, b.netns)
}

// del calls DEL, some times or until half of it. A DEL that was killed may come again or not.
func (c *chaos) del(r *rand.Rand, b *cell) {
	c.truth.locked(func() { b.told = netip.Addr{} })
	for range 1 + r.IntN(2) {
		if _, how := c.call(r, b, "DEL", c.config(b, ""), r.IntN(10) == 0); how != "" && r.IntN(2) == 0 {
			c.call(r, b, "DEL", c.config(b, ""), false)
		}
	}
	c.count("DELs")
}

// collect calls GC as a runtime does, with the sandboxes that it knew at some time.
func (c *chaos) collect(r *rand.Rand) {
	var stale []string
	for !c.over() {
		now := c.truth.living()
		list := now
		if stale != nil && r.IntN(2) == 0 {
			list = stale
		}
		var valid []string
		for _, id := range list {
			valid = append(valid, fmt.Sprintf(`{"containerID":%q,"ifname":%q}`, id, ifName))
		}
		more := `,"cni.dev/valid-attachments":[` + strings.Join(valid, ",") + `]`
		asks := &cell{macvlan: r.IntN(4) == 0}
		c.call(r, asks, "GC", c.config(asks, more), r.IntN(8) == 0)
		c.count("GCs")
		if stale = slices.Clone(now); r.IntN(3) == 0 {
			stale = nil
		}
		c.pause(r, 8000)
	}
}

// runAgent starts the agent. The function that it returns ends it: in order, or not.
func (c *chaos) runAgent() (end func(inOrder bool)) {
	log, finish := run(c.t, append([]string{"NODE_NAME=node1"}, c.env...), filepath.Join(node.Bin, "relink-agent"), "--checkpoint-dir", c.store.Dir(),
		"--host-grace", "0s", "--audit-every", "10s", "--kubeconfig", c.kubeconfig, "--runtime-endpoint", "unix://"+c.criSocket)
	await(c.t, 30*time.Second, "the agent", func() bool {
		_, err := control.Client{Path: c.agentSocket}.Status(c.t.Context())
		return err == nil
	})
	return func(inOrder bool) {
		if !inOrder {
			_ = finish(sigkill)
		} else if err := finish(sigterm); err != nil {
			c.t.Errorf("the agent ends with %v", err)
		}
		if text := log.String(); strings.Contains(text, "an audit has found errors") || strings.Contains(text, "panic") {
			c.t.Errorf("the agent says\n%s", text)
		}
	}
}

// relinkSays runs relink audit and relink gc --dry-run as an operator does. They find no error, whoever does not answer.
func (c *chaos) relinkSays(r *rand.Rand) {
	for !c.over() {
		args := []string{"audit"}
		if r.IntN(2) == 0 {
			args = []string{"gc", "--dry-run"}
		}
		cmd := exec.Command(filepath.Join(node.Bin, "relink"), append([]string{"--checkpoint-dir", c.store.Dir()}, append(args, "-o", "json")...)...)
		cmd.Env = append(c.env, "PATH="+node.Bin)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		var report struct {
			Errors   int
			Problems []string
			Findings []json.RawMessage
		}
		exit := new(exec.ExitError)
		if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) || json.Unmarshal(out, &report) != nil {
			c.t.Errorf("relink %v: %v\n%s", args, err, &stderr)
		}
		if report.Errors > 0 || err != nil && len(report.Problems) == 0 {
			c.t.Errorf("relink %v: %v, %d errors, first %s\n%s", args, err, report.Errors, report.Findings[:min(2, len(report.Findings))], &stderr)
		}
		c.count("reports of relink")
		c.pause(r, 1500)
	}
}

// podOf is the pod of an object as plugins know it.
func podOf(o made) attachment.Pod {
	return attachment.Pod{Namespace: o.namespace, Name: o.name, UID: string(o.uid)}
}
