package move

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

// Options of a move.
type Options struct {
	Store *checkpoint.Store
	// Source and To are the names of devices of the host. What is stacked on From moves to To.
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

// job is a planned move with its outcome.
type job struct {
	planned
	target  *target
	outcome AttachmentOutcome
	// complete says that the new interface has got everything of the old one. What differs from the record later, the pod has changed.
	complete bool
	// carrierChanges is how often the new interface had got or lost carrier by then.
	carrierChanges int
}

// Run moves what is on opts.From to opts.To. It finds out what cannot be moved before it touches anything. If one
// attachment fails, it stays where it is, and Run goes on with the others. The report has all of them. An error means
// that nothing was done.
func Run(ctx context.Context, opts Options) (UplinkReport, error) {
	start := time.Now()
	r, finish, err := beginRun(ctx, opts)
	if err != nil {
		return UplinkReport{}, err
	}
	defer finish()
	device, err := r.awaitUplink(ctx, start.Add(opts.Wait))
	if err != nil {
		return UplinkReport{}, err
	}
	records, unreadable, err := opts.Store.Select(opts.Select)
	if err != nil {
		return UplinkReport{}, err
	}
	for _, u := range unreadable {
		r.report.Problems = append(r.report.Problems, u.Err.Error())
	}
	moves, err := planMoves(records, r.devices, opts.Source, device)
	if err != nil {
		return UplinkReport{}, err
	}
	for _, p := range moves {
		p.index = r.previousIndex(p)
		r.moves = append(r.moves, &job{planned: p, outcome: newOutcome(p)})
	}
	return r.execute(ctx, start)
}

// beginRun opens what a move needs, and finishes earlier moves that were killed.
func beginRun(ctx context.Context, opts Options) (*moveRun, func(), error) {
	unlock := func() {}
	if !opts.DryRun {
		var err error
		if unlock, err = lockMoves(ctx, opts.Store); err != nil {
			return nil, nil, err
		}
		if err := finishKilled(ctx, opts.Store); err != nil {
			unlock()
			return nil, nil, err
		}
	}
	host, err := kernel.OpenHost()
	if err != nil {
		unlock()
		return nil, nil, err
	}
	r := &moveRun{Options: opts, host: host, report: UplinkReport{DryRun: opts.DryRun, Attachments: []AttachmentOutcome{}}}
	fail := func(err error) (*moveRun, func(), error) {
		host.Close()
		unlock()
		return nil, nil, err
	}
	if r.devices, err = host.Devices(); err != nil {
		return fail(err)
	}
	if r.records, _, err = opts.Store.List(); err != nil {
		return fail(err)
	}
	if r.announcer, err = host.NewAnnouncer(); err != nil {
		return fail(err)
	}
	return r, func() {
		r.announcer.Close()
		host.Close()
		unlock()
	}, nil
}

// lockMoves waits until no other move of the node is under way.
func lockMoves(ctx context.Context, store *checkpoint.Store) (func(), error) {
	unlock, err := store.LockMoves(ctx)
	if err != nil {
		return nil, fmt.Errorf("nothing was moved: %w: wait until it ends, and try again", err)
	}
	return unlock, nil
}

// awaitUplink returns the device that attachments will move to. It waits for the device's carrier until the deadline: a NIC
// whose driver was just loaded needs seconds. A dry run does not wait.
func (r *moveRun) awaitUplink(ctx context.Context, deadline time.Time) (netstate.LiveDevice, error) {
	for {
		device, err := checkUplink(r.devices, r.Source, r.Target)
		waiting := err != nil && device.Up && !device.Carrier
		if !waiting || r.DryRun || time.Now().After(deadline) || ctx.Err() != nil {
			return device, err
		}
		waitPollInterval(ctx)
		if r.devices, err = r.host.Devices(); err != nil {
			return device, err
		}
	}
}

// previousIndex returns the index that the interface had when it was on the new parent before. It returns 0 if it was
// never there.
func (r *moveRun) previousIndex(p planned) int {
	note, err := r.Store.LoadMove(p.record.Attachment.ContainerID, p.record.Attachment.IfName)
	if err != nil || len(p.newParents) == 0 || note.State == checkpoint.MoveBegun || baseName(note.OldParents) != baseName(p.newParents) {
		return 0
	}
	return note.Index
}

func baseName(chain []netstate.Device) string {
	if len(chain) == 0 {
		return ""
	}
	return chain[len(chain)-1].Name
}

// execute checks everything, and then moves what can be moved.
func (r *moveRun) execute(ctx context.Context, start time.Time) (UplinkReport, error) {
	r.inspectAll()
	r.markDeleted(ctx)
	if r.canProceed() {
		shared, err := r.lockParents(ctx)
		if err != nil {
			return UplinkReport{}, err
		}
		defer shared()
		if err := r.prepareTargets(ctx); err != nil {
			return UplinkReport{}, err
		}
		r.markDeleted(ctx)
	}
	switch {
	case ctx.Err() != nil:
		r.report.Interrupted = true
		r.removeCreatedVLANs()
	case r.DryRun:
	case !r.canProceed():
		r.removeCreatedVLANs()
	default:
		if err := r.writeJournal(); err != nil {
			r.removeCreatedVLANs()
			return UplinkReport{}, err
		}
		r.moveSandboxes(ctx)
		r.verifyMoved(ctx)
		r.report.Interrupted = ctx.Err() != nil
	}
	return r.buildReport(start), nil
}

// lockParents keeps failed ADDs from removing VLAN devices that the move will use.
func (r *moveRun) lockParents(ctx context.Context) (func(), error) {
	if r.DryRun {
		return func() {}, nil
	}
	shared, err := r.Store.LockParents(ctx)
	if err != nil {
		return nil, err
	}
	return shared.Release, nil
}

// canProceed says that there is something to move, and that the move may begin.
func (r *moveRun) canProceed() bool {
	movable, deleted := 0, 0
	for _, j := range r.moves {
		switch {
		case j.refused == "":
			movable++
		case j.outcome.State == Deleted:
			deleted++
		}
	}
	return movable > 0 && (movable+deleted == len(r.moves) || r.Force) && (len(r.report.Problems) == 0 || r.Force)
}

// movableJobs returns the jobs that can be moved.
func (r *moveRun) movableJobs() (jobs []*job) {
	for _, j := range r.moves {
		if j.refused == "" {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// removeCreatedVLANs is for a run that moves nothing. It removes the VLAN devices that this run has made, unless somebody uses them
// by now.
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
	r.createdVLANs = nil
}

// chainKey returns a key that is different for each chain of parents.
func chainKey(chain []netstate.Device) (key string) {
	for _, d := range chain {
		key += fmt.Sprintf("%s %s %d %+v\n", d.Kind, d.Name, d.MTU, d.VLAN)
	}
	return key
}

// sameParents says that both chains have devices of the same names.
func sameParents(a, b []netstate.Device) bool {
	return slices.EqualFunc(a, b, func(x, y netstate.Device) bool { return x.Name == y.Name && x.Kind == y.Kind })
}

func newOutcome(p planned) AttachmentOutcome {
	o := AttachmentOutcome{Attachment: p.record.Attachment, Pod: p.record.Pod, State: ToMove, OldParent: nearestParent(p.record.Interface.Parents), NewParent: nearestParent(p.newParents)}
	if p.refused != "" {
		o.State, o.Reason = Refused, p.refused
	}
	return o
}

func nearestParent(chain []netstate.Device) string {
	if len(chain) == 0 {
		return ""
	}
	return chain[0].Name
}

func (j *job) refuse(reason string) {
	if j.refused == "" {
		j.refused, j.outcome.State, j.outcome.Reason = reason, Refused, reason
	}
}

func containerID(j *job) string { return j.record.Attachment.ContainerID }

func sameAttachment(key attachment.Key) func(*job) bool {
	return func(j *job) bool { return j.record.Attachment == key }
}
