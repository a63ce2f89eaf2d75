package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/bench/results"
)

const (
	// idleFor is how long the agent's processor time is measured. An agent looks at the node about once in this time.
	idleFor = time.Minute
	// quiet is how little processor time an idle agent takes in quietFor. After a start and a restore it reads all pods first, which
	// takes a while on a busy machine.
	quiet, quietFor = 2 * time.Millisecond, 2 * time.Second
)

// benchAgent measures what an agent takes while nothing happens, before and after it has restored all pods.
func benchAgent(bin string, pods int) (_ []results.Agent, retErr error) {
	n := &node{bin: bin, store: checkpoint.OpenStore("/run/relink-bench/checkpoints"), perParent: onOne}
	defer n.remove()
	if err := n.grow(pods); err != nil {
		return nil, err
	}
	a, err := startAgent(n)
	if err != nil {
		return nil, err
	}
	defer func() { retErr = errors.Join(retErr, a.stop()) }()
	if err := awaitLost(a.client, pods, 0); err != nil {
		return nil, err
	}
	started, err := measureIdle(a.cmd.Process.Pid, pods, "after the start")
	if err != nil {
		return nil, err
	}
	lost := n.parentName(0)
	if err := shell("", "ip link del "+lost); err != nil {
		return nil, err
	}
	if err := awaitLost(a.client, pods, pods); err != nil {
		return nil, err
	}
	if err := shell("", "ip link add "+lost+" type veth peer name peer-"+lost+"\nip link set "+lost+" up\nip link set peer-"+lost+" up"); err != nil {
		return nil, err
	}
	if err := awaitLost(a.client, pods, 0); err != nil {
		return nil, err
	}
	restored, err := measureIdle(a.cmd.Process.Pid, pods, "after a restore of all")
	if err != nil {
		return nil, err
	}
	rows := []results.Agent{started, restored}
	fmt.Printf("An agent on a node with %d idle pods\n\n%s\n", pods, results.Results{Agent: rows}.AgentTable())
	return rows, nil
}

// measureIdle reads what the process takes over idleFor.
func measureIdle(pid, pods int, when string) (row results.Agent, err error) {
	if err := awaitQuiet(pid); err != nil {
		return row, err
	}
	used, err := usedIn(pid, idleFor)
	if err != nil {
		return row, err
	}
	row = results.Agent{Pods: pods, When: when, CPU: float64(used.Microseconds()) / 1000 / idleFor.Seconds()}
	for field, to := range map[string]*float64{"VmRSS:": &row.Resident, "RssAnon:": &row.Anonymous, "RssFile:": &row.File, "VmHWM:": &row.Peak} {
		if *to, err = megabytes(pid, field); err != nil {
			return row, err
		}
	}
	return row, nil
}

// awaitQuiet waits until the process has read all pods.
func awaitQuiet(pid int) error {
	for begun := time.Now(); ; {
		used, err := usedIn(pid, quietFor)
		if err != nil || used <= quiet {
			return err
		}
		if time.Since(begun) > 5*time.Minute {
			return fmt.Errorf("the agent is not idle: it used %s in %s", used, quietFor)
		}
	}
}

// usedIn returns the processor time that the process uses in this time from now.
func usedIn(pid int, length time.Duration) (time.Duration, error) {
	before, err := processorTime(pid)
	if err != nil {
		return 0, err
	}
	time.Sleep(length)
	after, err := processorTime(pid)
	return after - before, err
}

// processorTime is the sum of what all threads of the process have used.
func processorTime(pid int) (sum time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("process %d has no threads: %w", pid, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(b), " ")
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += time.Duration(n)
	}
	return sum, nil
}

// megabytes reads a field of /proc/PID/status.
func megabytes(pid int, field string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == field {
			kB, err := strconv.ParseFloat(words[1], 64)
			return kB / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no %s", pid, field)
}
