package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
	"github.com/relink-cni/relink/pkg/wait"
)

// Options of a move.
type Options struct {
	Store *checkpoint.Store
	// Source and Target are the names of devices of the host. What is stacked on Source moves to Target.
	Source, Target string
	// Select limits the move.
	Select selection.Selection
	// Force moves what can be moved, and leaves out the rest. Without Force, nothing moves if a selected attachment
	// cannot move.
	Force bool
	// NoProbe does not ask whether the pods' gateways answer on Target.
	NoProbe bool
	// Wait is the longest wait until Target has carrier and the gateways answer there.
	Wait time.Duration
	// DryRun plans and changes nothing.
	DryRun bool
	// Journal is a file to write for Revert. Empty means none.
	Journal string
	// Progress is called after each sandbox with the number of finished sandboxes. It may be nil.
	Progress func(finished, total int)
}

// moveRun is one running move.
type moveRun struct {
	Options
	host      *kernel.Namespace
	devices   netstate.Devices
	announcer *kernel.Announcer
	records   []checkpoint.Record
	moves     []*job
	report    UplinkReport
	// createdVLANs are the VLAN devices that this run has made.
	createdVLANs []string
}

// job is the move of one attachment.
type job struct {
	record checkpoint.Record
	// newParents is the new chain of parents, the nearest first. It is empty if the attachment cannot be moved.
	newParents []netstate.Device
	// index is the index that the interface asks for, 0 for any.
	index int
	// target is what became of newParents.
	target  restore.ReadyChain
	outcome AttachmentOutcome
	// complete says that the new interface has got everything of the old one. What differs from the record later, the pod has changed.
	complete bool
	// carrierChanges is how often the new interface had got or lost carrier by then.
	carrierChanges int
}

// newJob returns the move of the attachment. refused says why it cannot be moved. It is empty if it can.
func newJob(record checkpoint.Record, newParents []netstate.Device, index int, refused string) *job {
	j := &job{record: record, newParents: newParents, index: index, outcome: AttachmentOutcome{
		Outcome: change.Outcome{Attachment: record.Attachment, Pod: record.Pod, State: ToMove}, OldParent: nearestParent(record.Interface.Parents), NewParent: nearestParent(newParents),
	}}
	if refused != "" {
		j.refuse(refused)
	}
	return j
}

// isMovable says that nothing is known that keeps the attachment from being moved. One whose checkpoint has vanished fails when
// its turn comes.
func (j *job) isMovable() bool { return j.outcome.State == ToMove || j.outcome.State == change.Failed }

func (j *job) refuse(reason string) {
	if j.isMovable() {
		j.outcome.State, j.outcome.Reason = change.Refused, reason
	}
}

// targetsOf returns the records of the jobs.
func targetsOf(jobs []*job) (targets []checkpoint.Record) {
	for _, j := range jobs {
		targets = append(targets, j.record)
	}
	return targets
}

// fail sets what became of the move by the error.
func (j *job) fail(err error) {
	if errors.Is(err, checkpoint.ErrNoCheckpoint) {
		err = errors.New("it was detached in the meantime")
	}
	j.outcome.Fail(err)
}

func (j *job) hasSwitched() bool { return j.outcome.SwitchDuration > 0 }

func (j *job) containerID() string { return j.record.Attachment.ContainerID }

// Run moves what is on opts.Source to opts.Target. It finds out what cannot be moved before it touches anything. If one
// attachment fails, it stays where it is, and Run goes on with the others. The report has all of them. An error means
// that nothing was done.
func Run(ctx context.Context, opts Options) (UplinkReport, error) {
	deadline := time.Now().Add(opts.Wait)
	return run(ctx, opts, func(r *moveRun) error {
		device, err := r.awaitUplink(ctx, deadline)
		if err != nil {
			return err
		}
		records, unreadable, err := opts.Store.Select(opts.Select)
		if err != nil {
			return err
		}
		for _, u := range unreadable {
			r.report.Problems = append(r.report.Problems, u.Err.Error())
		}
		r.moves, err = planMoves(records, r.devices, opts.Source, device)
		for _, j := range r.moves {
			j.index = r.previousIndex(j)
		}
		return err
	})
}

// run opens what a move needs, finishes earlier moves that were killed, and carries out the moves that plan decides on.
func run(ctx context.Context, opts Options, plan func(*moveRun) error) (UplinkReport, error) {
	start := time.Now()
	if !opts.DryRun {
		unlock, err := opts.Store.LockMoves(ctx)
		if err != nil {
			return UplinkReport{}, fmt.Errorf("nothing was moved: %w", err)
		}
		defer unlock()
		if err := finishKilled(ctx, opts.Store); err != nil {
			return UplinkReport{}, err
		}
	}
	host, err := kernel.OpenHost()
	if err != nil {
		return UplinkReport{}, err
	}
	defer host.Close()
	r := &moveRun{Options: opts, host: host, report: UplinkReport{Report: change.Report[AttachmentOutcome]{DryRun: opts.DryRun, Outcomes: []AttachmentOutcome{}}}}
	if r.devices, err = host.Devices(); err != nil {
		return UplinkReport{}, err
	}
	if r.records, _, err = opts.Store.List(); err != nil {
		return UplinkReport{}, err
	}
	if r.announcer, err = host.NewAnnouncer(); err != nil {
		return UplinkReport{}, err
	}
	defer r.announcer.Close()
	if err = plan(r); err == nil {
		err = r.execute(ctx)
	}
	if err != nil {
		return UplinkReport{}, err
	}
	return r.buildReport(start), nil
}

// awaitUplink returns the device that attachments will move to. It waits for the device's carrier until the deadline: a NIC
// whose driver was just loaded needs seconds. A dry run does not wait.
func (r *moveRun) awaitUplink(ctx context.Context, deadline time.Time) (device netstate.LiveDevice, err error) {
	poll(ctx, deadline, func() (pending bool) {
		if r.devices, err = r.host.Devices(); err != nil {
			return false
		}
		device, err = checkUplink(r.devices, r.Source, r.Target)
		return err != nil && device.Up && !device.Carrier && !r.DryRun
	})
	return device, err
}

// pollInterval is the pause between two looks at what may become ready.
const pollInterval = 100 * time.Millisecond

// poll calls look until nothing is pending, the deadline has passed or ctx has ended. It calls it at least once.
func poll(ctx context.Context, deadline time.Time, look func() (pending bool)) {
	for look() && time.Now().Before(deadline) && wait.Sleep(ctx, pollInterval) {
	}
}

// previousIndex returns the index that the interface had when it was on the new parent before. It returns 0 if it was
// never there.
func (r *moveRun) previousIndex(j *job) int {
	note, err := r.Store.LoadMove(j.record.Attachment)
	if err != nil || len(j.newParents) == 0 || note.State == checkpoint.MoveBegun || checkpoint.Base(note.OldParents).Name != checkpoint.Base(j.newParents).Name {
		return 0
	}
	return note.Index
}

// execute checks everything, and then moves what can be moved.
func (r *moveRun) execute(ctx context.Context) error {
	r.inspectAll(ctx)
	r.markDeleted(ctx)
	if r.canProceed() && ctx.Err() == nil {
		if !r.DryRun { // Failed ADDs must not remove VLAN devices that the move will use.
			shared, err := r.Store.LockParents(ctx)
			if err != nil {
				return err
			}
			defer shared.Release()
		}
		if err := r.prepareTargets(ctx); err != nil {
			return err
		}
		r.markDeleted(ctx)
	}
	switch {
	case ctx.Err() != nil:
		r.report.Interrupted = true
		r.removeCreatedVLANs()
		for _, j := range r.jobsThat((*job).isMovable) {
			j.fail(change.ErrNotTried)
		}
	case r.DryRun:
	case !r.canProceed():
		r.removeCreatedVLANs()
	default:
		if err := r.writeJournal(); err != nil {
			r.removeCreatedVLANs()
			return err
		}
		r.moveSandboxes(ctx)
		r.verifyMoved(ctx)
		r.report.Interrupted = ctx.Err() != nil
	}
	return nil
}

// canProceed says that there is something to move, and that the move may begin.
func (r *moveRun) canProceed() bool {
	movable := len(r.jobsThat((*job).isMovable))
	refused := len(r.jobsThat(func(j *job) bool { return j.outcome.State == change.Refused }))
	return movable > 0 && (refused+len(r.report.Problems) == 0 || r.Force)
}

// jobsThat returns the jobs that match.
func (r *moveRun) jobsThat(match func(*job) bool) (jobs []*job) {
	for _, j := range r.moves {
		if match(j) {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// removeCreatedVLANs is for a run that moves nothing. It removes the VLAN devices that this run has made, unless somebody uses them
// by now: a VLAN device on a port that later becomes a bond's takes the bond's frames.
func (r *moveRun) removeCreatedVLANs() {
	devices, err := r.host.Devices()
	if err != nil {
		return
	}
	for _, name := range slices.Backward(r.createdVLANs) {
		device, ok := devices.ByName(name)
		if !ok || slices.ContainsFunc(devices, func(d netstate.LiveDevice) bool { return d.ParentIndex == device.Index }) {
			continue
		}
		if used, err := r.host.HasAddresses(device.Index); err != nil || used {
			continue
		}
		if err := r.host.Delete(name); err != nil && !errors.Is(err, kernel.ErrNoDevice) {
			r.report.Problems = append(r.report.Problems, fmt.Sprintf("%s was made and cannot be removed: %v", name, err))
		}
	}
}

// sameParents says that both chains have devices of the same names.
func sameParents(a, b []netstate.Device) bool {
	return slices.EqualFunc(a, b, func(x, y netstate.Device) bool { return x.Name == y.Name && x.Kind == y.Kind })
}

func nearestParent(chain []netstate.Device) string {
	if len(chain) == 0 {
		return ""
	}
	return chain[0].Name
}
