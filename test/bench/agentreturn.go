package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/test/bench/results"
)

const (
	// returnRounds is how often the parent of all pods goes and comes back. Each round measures relink restore and an agent.
	returnRounds = 3
	// changedPods is how many pods change something, one after the other.
	changedPods = 20
)

// benchReturns measures how long an agent takes when the parent of all pods is back, beside relink restore.
func benchReturns(bin string, counts []int) (rows []results.Return, err error) {
	n := &node{bin: bin, store: checkpoint.OpenStore("/run/relink-bench/checkpoints"), perParent: onOne}
	defer n.remove()
	for _, pods := range counts {
		if err := n.grow(pods); err != nil {
			return nil, err
		}
		var all returnTimes
		for range returnRounds {
			if err := all.measure(n); err != nil {
				return nil, fmt.Errorf("%d pods: %w", pods, err)
			}
		}
		rows = append(rows, results.Return{
			Pods: pods, CommandS: median(all.command), AgentS: median(all.agent), Ratio: median(ratios(all.agent, all.command)), ReadyS: median(all.ready),
			FirstCPU: median(all.first) / float64(pods), AgainCPU: median(all.again) / float64(pods), ChangeCPU: median(all.change) / changedPods,
		})
	}
	fmt.Printf("An agent when the parent of all pods is back, median of %d rounds\n\n%s\n", returnRounds, results.Results{Returns: rows}.ReturnTable())
	return rows, nil
}

// returnTimes has a value for each round. command, agent and ready are in seconds. The others are processor times of the agent in
// milliseconds: of its first reading, of the reading after the restore, and of changes in some pods.
type returnTimes struct {
	command, agent, ready, first, again, change []float64
}

// measure adds a round.
func (t *returnTimes) measure(n *node) (retErr error) {
	took, err := n.measureOnce(way{name: "relink restore", run: byRelink})
	if err != nil {
		return err
	}
	t.command = append(t.command, took.Seconds())
	a, err := startAgent(n)
	if err != nil {
		return err
	}
	defer func() { retErr = errors.Join(retErr, a.stop()) }()
	t.ready = append(t.ready, a.ready.Seconds())
	for _, part := range []struct {
		cpu *[]float64
		do  func() error
	}{
		{&t.first, func() error { return nil }},
		{&t.change, func() error { return n.change(changedPods) }},
		{&t.again, func() error { return t.awaitReturn(n, a) }},
	} {
		if err := part.do(); err != nil {
			return err
		}
		used, err := a.untilQuiet()
		if err != nil {
			return err
		}
		*part.cpu = append(*part.cpu, used)
	}
	return n.verify()
}

// awaitReturn takes the parent of all pods away and brings it back. It measures the time until the agent says that all are whole.
func (t *returnTimes) awaitReturn(n *node, a *agentProcess) error {
	pods, name := len(n.sandboxes), n.parentName(0)
	if err := shell("", "ip link del "+name); err != nil {
		return err
	}
	if err := awaitLost(a.client, pods, pods); err != nil {
		return err
	}
	time.Sleep(settling)
	if err := shell("", "ip link add "+name+" type veth peer name peer-"+name+"\nip link set "+name+" up\nip link set peer-"+name+" up"); err != nil {
		return err
	}
	begun := time.Now()
	if err := awaitLost(a.client, pods, 0); err != nil {
		return err
	}
	t.agent = append(t.agent, time.Since(begun).Seconds())
	var err error
	a.used, err = processorTime(a.cmd.Process.Pid)
	return err
}

// change adds a route in some pods, and takes it away again.
func (n *node) change(pods int) error {
	for i := range pods {
		for _, verb := range []string{"add", "del"} {
			if err := shell(n.sandboxes[i*len(n.sandboxes)/pods].path, "ip route "+verb+" 198.51.100.0/24 dev eth0"); err != nil {
				return err
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

// agentProcess is an agent that runs.
type agentProcess struct {
	cmd    *exec.Cmd
	client control.Client
	// ready is the time from the start until the agent told that it is ready.
	ready time.Duration
	// used is its processor time so far, as far as it was measured.
	used time.Duration
}

// startAgent starts an agent for the node, and waits until it is ready as systemd does.
func startAgent(n *node) (*agentProcess, error) {
	notify := "/run/relink-bench/notify.sock"
	_ = os.Remove(notify)
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify})
	if err != nil {
		return nil, err
	}
	defer func() { _ = listener.Close() }()
	a := &agentProcess{cmd: exec.Command(filepath.Join(n.bin, "relink-agent"), "--host-grace", "0s", "--log-level", "error"), client: control.Client{Path: "/run/relink-bench/agent.sock"}}
	a.cmd.Env = append(os.Environ(), checkpoint.DirEnv+"="+n.store.Dir(), control.SocketEnv+"="+a.client.Path, "NOTIFY_SOCKET="+notify)
	a.cmd.Stderr = os.Stderr
	begun := time.Now()
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	err = listener.SetReadDeadline(begun.Add(2 * time.Minute))
	for message := make([]byte, 256); err == nil; {
		var size int
		if size, err = listener.Read(message); string(message[:size]) == "READY=1" {
			a.ready = time.Since(begun)
			return a, nil
		}
	}
	return nil, errors.Join(err, a.stop())
}

func (a *agentProcess) stop() error {
	return errors.Join(a.cmd.Process.Signal(os.Interrupt), a.cmd.Wait())
}

// untilQuiet waits until the agent does nothing, and returns the processor time in milliseconds since the last measurement.
func (a *agentProcess) untilQuiet() (float64, error) {
	if err := awaitQuiet(a.cmd.Process.Pid); err != nil {
		return 0, err
	}
	before := a.used
	var err error
	a.used, err = processorTime(a.cmd.Process.Pid)
	return float64((a.used - before).Microseconds()) / 1000, err
}

// awaitLost waits until the agent has all pods, and so many are lost.
func awaitLost(client control.Client, pods, want int) error {
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		status, err := client.Status(context.Background())
		all, lost := 0, 0
		for _, c := range status.Chains {
			all, lost = all+c.Attachments, lost+c.Lost
		}
		if err == nil && all == pods && lost == want {
			return nil
		}
		if time.Since(begun) > 2*time.Minute {
			return fmt.Errorf("the agent has %d pods of %d, and %d are lost: %w", all, pods, lost, err)
		}
	}
}
