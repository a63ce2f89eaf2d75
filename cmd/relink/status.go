package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/guard"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/wait"
)

func newStatus() *cobra.Command {
	var cacheDir string
	var watch bool
	var interval time.Duration
	var leases leaseDir
	opts := restore.Options{DryRun: true}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show on one screen how the pods of this node are, and what to do",
		Long: `Show on one screen how the pods of this node are: the devices below them, the causes for which
some pods are not as recorded, what to do, the address ranges that are nearly full, what the
last restore did, and what relink-agent does. It changes nothing.

Exit status 0: everything is as recorded; 1: something is not, or cannot be read; 2: usage or
environment.`,
		Example: `  relink status
  relink status --watch   # again every 2 seconds, until ^C
  relink status -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if interval <= 0 {
				return fmt.Errorf("invalid --interval %s: must be more than 0", interval)
			}
			if _, err := leases.path(); err != nil {
				return err
			}
			if opts.Store, err = openStore(cmd); err != nil {
				return err
			}
			s := screenOf(cmd)
			show := func() error {
				status, err := readStatus(cmd.Context(), opts, cacheDir, leases)
				if err != nil {
					return err
				}
				return status.show(s)
			}
			if watch {
				return watchStatus(cmd.Context(), interval, s, show)
			}
			return show()
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&watch, "watch", "w", false, "show it again and again, until ^C")
	flags.DurationVar(&interval, "interval", 2*time.Second, "`time` between two looks of --watch")
	addCacheDir(cmd, &cacheDir)
	addDataDir(flags, &leases)
	addOutput(cmd)
	return cmd
}

// watchStatus calls show at every interval until the context ends.
func watchStatus(ctx context.Context, interval time.Duration, s *screen, show func() error) error {
	for {
		if s.colour {
			fmt.Fprint(s.raw(), "\x1b[H\x1b[2J") // Move the cursor home and clear the screen.
		}
		switch err := show(); {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, errDiffers):
			return err
		}
		if o := streamOf(s.out); o != nil && o.writeErr != nil {
			return o.writeErr // Nobody can read what it shows.
		}
		if !wait.Sleep(ctx, interval) {
			return nil
		}
	}
}

// nodeStatus is the state of the pods on the node.
type nodeStatus struct {
	Time    time.Time             `json:"at"`
	Parents []restore.DeviceState `json:"parents"`
	// Attachments is the number of attachments in each state. Pods is the number of their pods.
	Attachments map[restore.State]int `json:"attachments"`
	Pods        int                   `json:"pods"`
	// Causes say why attachments are not as recorded. The cause of most of them comes first.
	Causes  []restore.Cause `json:"causes"`
	Pending pendingWork     `json:"owed"`
	// Pools are the address pools that are nearly full. PoolProblems are the networks whose leases could not be
	// read.
	Pools        []fullSet `json:"poolsNearlyFull"`
	PoolProblems []string  `json:"poolProblems,omitempty"`
	// LastRestore is nil if none ran since the boot.
	LastRestore *checkpoint.LastRestore `json:"lastRestore,omitempty"`
	// Agent is what relink-agent says, nil if none answers. AgentProblem says why one that runs does not answer.
	Agent        *control.Status `json:"agent,omitempty"`
	AgentProblem string          `json:"agentProblem,omitempty"`
	// Guard is the guard that is under way or was killed, nil if there is none.
	Guard *guard.View `json:"guard,omitempty"`
	// Problems are the differences from the record that belong to no attachment.
	Problems []string `json:"problems,omitempty"`
	// Notes are facts that are good to know, such as a NIC under another name.
	Notes []string `json:"notes,omitempty"`

	pods map[attachment.Key]string
	// recorded says that everything is as recorded, and that nothing is unknown. It decides the exit status.
	recorded bool
	dir      string
}

// pendingWork is work that is left to do.
type pendingWork struct {
	// Announcements is the number of attachments whose neighbours were not told.
	Announcements int `json:"announcements"`
	// Unreadable has the reason of each checkpoint that cannot be read.
	Unreadable []string `json:"unreadable"`
	// WithoutCheckpoint are interfaces of running sandboxes without a checkpoint.
	WithoutCheckpoint []uncaptured `json:"withoutCheckpoint"`
	// SandboxesGone is the number of checkpoints whose sandbox is gone.
	SandboxesGone int `json:"sandboxesGone"`
}

// readStatus looks at the node, and reads the leases at the same time.
func readStatus(ctx context.Context, opts restore.Options, cacheDir string, leases leaseDir) (nodeStatus, error) {
	type pools struct {
		full     []fullSet
		problems []string
	}
	read := make(chan pools, 1)
	go func() {
		full, problems := poolsNearlyFull(ctx, leases)
		read <- pools{full, problems}
	}()
	report, err := inspectAttachments(ctx, opts)
	if err != nil {
		return nodeStatus{}, err
	}
	found, err := findUncaptured(ctx, opts.Store, cacheDir)
	if err != nil {
		return nodeStatus{}, err
	}
	missing, problems := splitFailed(found)
	report.Problems = append(report.Problems, problems...)
	status := summarizeStatus(report, missing)
	status.Time, status.dir = time.Now().UTC().Truncate(time.Second), opts.Store.Dir()
	status.addLastRestore(opts.Store.LastRestore())
	status.addAgent(ctx)
	status.addGuard()
	p := <-read
	status.Pools, status.PoolProblems = orEmpty(p.full), p.problems
	status.recorded = status.recorded && len(status.PoolProblems) == 0
	return status, nil
}

// addLastRestore adds what checkpoint.Store.LastRestore returned. A restore replaces a torn file. It cannot replace a
// directory.
func (status *nodeStatus) addLastRestore(last checkpoint.LastRestore, err error) {
	switch {
	case err == nil:
		status.LastRestore = &last
		return
	case errors.Is(err, checkpoint.ErrNoCheckpoint):
		return
	case errors.Is(err, checkpoint.ErrTorn):
		status.Problems = append(status.Problems, fmt.Sprintf("%v; the next relink restore writes it anew", err))
	default:
		status.Problems = append(status.Problems, fmt.Sprintf("%v: remove it. The next relink restore writes it anew", err))
	}
	status.recorded = false
}

// summarizeStatus sums up what was found. It names each thing once: what Pending has is not in Causes, and what Causes has is not
// in Problems.
func summarizeStatus(report restore.Report, missing []capture.InterfaceOutcome) nodeStatus {
	status := nodeStatus{
		Parents: orEmpty(report.Devices), Attachments: map[restore.State]int{}, Causes: restore.Causes(report),
		Pending:  pendingWork{Unreadable: []string{}, WithoutCheckpoint: uncapturedList(missing)},
		Problems: slices.Clone(report.Problems), Notes: report.Notes, pods: map[attachment.Key]string{}, recorded: report.AsRecorded() && len(missing) == 0,
	}
	pods, unreadable := map[string]bool{}, map[attachment.Key]bool{}
	for _, o := range report.Attachments {
		status.Attachments[stateOf(o)]++
		name := podCell(o.Pod, o.Attachment.ContainerID)
		status.pods[o.Attachment], pods[name] = name, true
		switch {
		case isUnreadable(o):
			status.Pending.Unreadable, unreadable[o.Attachment] = append(status.Pending.Unreadable, o.Reason), true
		case o.State == restore.SandboxGone:
			status.Pending.SandboxesGone++
		case o.AnnouncementOwed:
			status.Pending.Announcements++
		}
	}
	status.Pods = len(pods)
	status.Causes = slices.DeleteFunc(status.Causes, func(c restore.Cause) bool { return unreadable[c.Attachments[0]] })
	status.Problems = slices.DeleteFunc(status.Problems, func(problem string) bool {
		return slices.ContainsFunc(status.Causes, func(c restore.Cause) bool { return strings.HasPrefix(problem, c.Reason) })
	})
	return status
}

// isUnreadable reports whether the outcome's checkpoint cannot be read. Then relink knows nothing of the interface.
func isUnreadable(o restore.Outcome) bool { return o.Interface.Link.Name == "" }

func (status nodeStatus) show(s *screen) error {
	return s.present(status, status.recorded, func() { status.write(s) })
}

// leasePatience is how long a status waits for the lock of a network's leases.
const leasePatience = time.Second

// poolsNearlyFull returns the range sets that are nearly full, and the networks that could not be read.
func poolsNearlyFull(ctx context.Context, dir leaseDir) (full []fullSet, problems []string) {
	stores, err := dir.stores("")
	if err != nil {
		return nil, []string{err.Error()}
	}
	for _, store := range stores {
		bounded, cancel := context.WithTimeout(ctx, leasePatience)
		u, err := store.Usage(bounded)
		cancel()
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		full = append(full, fullSets([]lease.Usage{u})...)
	}
	return full, problems
}
