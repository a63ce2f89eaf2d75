package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/test/bench/results"
	"github.com/relink-cni/relink/test/fresh"
)

const (
	// recordedPods is how many pods are made one after the other, so many in a second, beside those that stay.
	recordedPods, podsPerSecond = 1000, 10
	// stockEvery is after how many pods the stock plugins attach one to stockSandbox and detach it, while the machine is as fast for them.
	stockEvery   = 20
	stockSandbox = netnsDir + "/stock"
	// resultsDir is where libcni keeps the results of ADDs.
	resultsDir = "/var/lib/cni/results"
	netnsDir   = "/run/netns"
)

// benchRecording measures how long an agent takes to record pods that another program attaches, and what that costs, beside each number of pods that
// stay. No container runtime is asked.
func benchRecording(bin string, counts []int) (rows []results.Recording, err error) {
	for _, dir := range []string{"/var/lib/cni", netnsDir} { // Those of the machine are not the node's.
		if err := errors.Join(os.MkdirAll(dir, 0o700), unix.Mount("tmpfs", dir, "tmpfs", 0, "")); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)) }()
	}
	if err := os.MkdirAll(resultsDir, 0o700); err != nil {
		return nil, err
	}
	for _, pods := range counts {
		n := &recordingNode{node: &node{bin: bin, store: checkpoint.OpenStore("/run/relink-bench/checkpoints"), perParent: onOne}}
		row, err := n.measure(pods)
		n.remove()
		if err != nil {
			return nil, fmt.Errorf("%d pods: %w", pods, err)
		}
		rows = append(rows, row)
	}
	fmt.Printf("An agent that records pods of other programs, %d in a second\n\n%s\n", podsPerSecond, results.Results{Recording: rows}.RecordingTable())
	return rows, nil
}

// recordingNode is a node whose pods nobody records but the agent.
type recordingNode struct {
	*node
	host  *kernel.Namespace
	stock *contender
	made  int
}

func (n *recordingNode) measure(pods int) (row results.Recording, retErr error) {
	if err := n.grow(1); err != nil { // It makes the parent.
		return row, err
	}
	var err error
	if n.host, err = kernel.OpenHost(); err != nil {
		return row, err
	}
	defer n.host.Close()
	stockDir, err := os.MkdirTemp("/var/tmp", "relink-bench-")
	if err != nil {
		return row, err
	}
	defer func() { _ = os.RemoveAll(stockDir) }()
	n.stock = &contender{plugin: "macvlan", ipam: "host-local", dataDir: stockDir}
	if err := fresh.Make(stockSandbox); err != nil {
		return row, err
	}
	defer func() {
		retErr = errors.Join(retErr, unix.Unmount(stockSandbox, unix.MNT_DETACH), os.Remove(stockSandbox))
	}()
	for range pods {
		if _, err := n.add(); err != nil {
			return row, err
		}
	}
	a, err := startAgent(n.node)
	if err != nil {
		return row, err
	}
	defer func() { retErr = errors.Join(retErr, a.stop()) }()
	if err := awaitLost(a.client, pods+1, 0); err != nil {
		return row, err
	}
	if _, err := a.untilQuiet(); err != nil {
		return row, err
	}
	waits, err := n.churn()
	if err != nil {
		return row, err
	}
	used, err := a.untilQuiet()
	if err != nil {
		return row, err
	}
	slices.Sort(waits)
	row = results.Recording{Pods: pods, MedianS: median(waits), P99S: waits[len(waits)*99/100], CPU: used / recordedPods}
	row.Ratio = row.CPU / (quantile(n.stock.addCPU, 0.5) + quantile(n.stock.delCPU, 0.5))
	row.Anonymous, err = megabytes(a.cmd.Process.Pid, "RssAnon:")
	return row, err
}

// add makes a pod, and the result of its ADD.
func (n *recordingNode) add() (id string, err error) {
	n.made++
	i := n.made
	id = fmt.Sprintf("pod-%05d", i)
	s := sandbox{path: filepath.Join(netnsDir, id), parent: n.parentName(0), iface: describe(i)}
	if err := fresh.Make(s.path); err != nil {
		return id, err
	}
	n.sandboxes = append(n.sandboxes, s)
	pod, err := kernel.Open(s.path)
	if err != nil {
		return id, err
	}
	defer pod.Close()
	parent, err := n.host.Index(s.parent)
	if err == nil {
		_, err = kernel.Build(n.host, pod, parent, s.iface)
	}
	if err != nil {
		return id, err
	}
	b, err := json.Marshal(map[string]any{
		"kind": "cniCacheV1", "containerId": id, "ifName": "eth0", "networkName": "lan", "netns": s.path, "config": []byte("{}"), "result": map[string]any{"cniVersion": "1.0.0"},
	})
	return id, errors.Join(err, os.WriteFile(filepath.Join(resultsDir, id), b, 0o600))
}

// removeOldest ends the pod that was made first, as a runtime does.
func (n *recordingNode) removeOldest() error {
	s := n.sandboxes[1] // The first one is relink's own.
	n.sandboxes = slices.Delete(n.sandboxes, 1, 2)
	return errors.Join(shell(s.path, "ip link del eth0"), os.Remove(filepath.Join(resultsDir, filepath.Base(s.path))), unix.Unmount(s.path, unix.MNT_DETACH), os.Remove(s.path))
}

// churn makes pods and ends as many, and returns the seconds from the end of each ADD until its pod was recorded.
func (n *recordingNode) churn() (waits []float64, err error) {
	ready := map[string]time.Time{}
	note := func() {
		for id, since := range ready {
			if _, err := os.Stat(filepath.Join(n.store.Dir(), id, "eth0.json")); err == nil {
				waits = append(waits, time.Since(since).Seconds())
				delete(ready, id)
			}
		}
	}
	begun := time.Now()
	for i := range recordedPods {
		id, err := n.add()
		if err != nil {
			return nil, err
		}
		ready[id] = time.Now()
		if err := n.removeOldest(); err != nil {
			return nil, err
		}
		if i%stockEvery == 0 {
			if err := n.stock.round(n.bin, stockSandbox); err != nil {
				return nil, err
			}
		}
		for next := begun.Add(time.Duration(i+1) * time.Second / podsPerSecond); time.Now().Before(next); time.Sleep(5 * time.Millisecond) {
			note()
		}
	}
	for end := time.Now().Add(30 * time.Second); len(ready) > 0; time.Sleep(5 * time.Millisecond) {
		if note(); time.Now().After(end) {
			return nil, fmt.Errorf("%d pods are not recorded", len(ready))
		}
	}
	return waits, nil
}
