package guard

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	// DefaultDir is on a file system that a reboot empties.
	DefaultDir = "/run/relink/guard"
	// DirEnv is the environment variable that names another directory.
	DirEnv = "RELINK_GUARD_DIR"
)

// Dir returns the directory of the guard's journal, log and lock: the value of DirEnv, or DefaultDir.
func Dir() string { return cmp.Or(os.Getenv(DirEnv), DefaultDir) }

// Plan is what a guard was asked to do.
type Plan struct {
	// Command is the command line.
	Command []string `json:"command"`
	// Limit is how long the command may take. KillAfter is how long it has to end after each signal.
	Limit     time.Duration `json:"limitNanoseconds"`
	KillAfter time.Duration `json:"killAfterNanoseconds"`
	// Wait is how long a restore waits for devices, and then for their carrier.
	Wait time.Duration `json:"waitNanoseconds"`
	// Stop are the units to stop.
	Stop []string `json:"stop,omitempty"`
	// Via are the devices whose pods move to another device while the command runs.
	Via []Via `json:"via,omitempty"`
	// Force goes on even if not everything is as recorded before the command.
	Force bool `json:"force,omitempty"`
	// RebuildBond and HostAddresses are options of the restore.
	RebuildBond   bool `json:"rebuildBond,omitempty"`
	HostAddresses bool `json:"hostAddresses,omitempty"`
	// CheckpointDir is the directory of the store. CacheDir is the directory of the CNI caches.
	CheckpointDir string `json:"checkpointDir"`
	CacheDir      string `json:"cacheDir,omitempty"`
}

// startMargin is time for those steps between the command and the start of the units that do not wait.
const startMargin = 10 * time.Second

// evictionDelay is after how long Kubernetes begins to evict the pods of a node whose kubelet is silent.
const evictionDelay = 5 * time.Minute

// moveMargin is time to move the pods to the other uplink and back. Each pod takes some tens of milliseconds.
const moveMargin = 30 * time.Second

// maxDowntime returns how long the units are stopped at most.
func (p Plan) maxDowntime() time.Duration {
	downtime := p.Limit + 2*p.KillAfter + p.Wait + startMargin
	if len(p.Via) > 0 {
		downtime += p.Wait + moveMargin
	}
	return downtime
}

// lines returns the plan for people.
func (p Plan) lines(start time.Time, log string) []string {
	lines := []string{fmt.Sprintf("command: %s, for %s at most", strings.Join(p.Command, " "), p.Limit)}
	for _, v := range p.Via {
		lines = append(lines, fmt.Sprintf("pods of %s: meanwhile on %s", v.Old, v.New))
	}
	switch {
	case len(p.Stop) > 0:
		lines = append(lines, fmt.Sprintf("deadline: %s is away for %s at most, until about %s", strings.Join(p.Stop, ", "), p.maxDowntime(), start.Add(p.maxDowntime()).Local().Format("15:04:05")))
		if p.maxDowntime() > evictionDelay {
			lines = append(lines, fmt.Sprintf("warning: Kubernetes evicts the pods of a node whose kubelet is silent for %s: give a shorter --limit or --wait", evictionDelay))
		}
	case len(p.Via) > 0:
		lines = append(lines, "the kubelet goes on: no pod is cut off (--stop stops it)")
	default:
		lines = append(lines, "the kubelet goes on: systemd knows none of "+strings.Join(Kubelets, ", ")+". Name the unit that contains it: --stop UNIT")
	}
	return append(lines, "log: "+log+" (relink guard --follow shows it)")
}
