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
	// From and To are the names of devices of the host. What is stacked on From moves to To.
	From, To string
	// Select limits the move.
	Select selection.Selection
	// Force moves what can be moved, and leaves out the rest. Without Force, nothing moves if a selected attachment
	// cannot move.
	Force bool
	// NoProbe does not ask whether the pods' gateways answer on To.
	NoProbe bool
	// Wait is the longest wait until To has carrier and the gateways answer there.
	Wait time.Duration
	// DryRun plans and changes nothing.
	DryRun bool
	// Journal is a file to write for Back. Empty means none.
	Journal string
	// Progress is called after each sandbox with the number of finished sandboxes. It may be nil.
	Progress func(done, total int)
}

// run is one running move.
type run struct {
	Options
	host      *kernel.Namespace
	devices   netstate.Devices
	announcer *kernel.Announcer
	all       []checkpoint.Record
	moves     []*job
	report    Report
	// made are the VLAN devices that this run has made.
	made []string
}

// job is a planned move with its outcome.
type job struct {
	planned
	target  *target
	outcome Outcome
	// complete says that the new interface has got everything of the old one. What differs from the record later, the pod has changed.
	complete bool
	// carrierChanges is how often the new interface had got or lost carrier by then.
	carrierChanges int
}

// Run moves what is on opts.From to opts.To. It finds out what cannot be moved before it touches anything. If one
// attachment fails, it stays where it is, and Run goes on with the others. The report has all of them. An error means
// that nothing was done.
func Run(ctx context.Context, opts Options) (Report, error) {
	start := time.Now()
	r, finish, err := begin(ctx, opts)
	if err != nil {
		return Report{}, err
	}
	defer finish()
	device, err := r.uplink(ctx, start.Add(opts.Wait))
	if err != nil {
		return Report{}, err
	}
	records, unreadable, err := opts.Store.Select(opts.Select)
	if err != nil {
		return Report{}, err
	}
	for _, u := range unreadable {
		r.report.Problems = append(r.report.Problems, u.Err.Error())
	}
	moves, err := planMoves(records, r.devices, opts.From, device)
	if err != nil {
		return Report{}, err
	}
	for _, p := range moves {
		p.index = r.earlierIndex(p)
		r.moves = append(r.moves, &job{planned: p, outcome: outcomeOf(p)})
	}
	return r.carryOut(ctx, start)
}

// begin opens what a move needs, and finishes earlier moves that were killed.
func begin(ctx context.Context, opts Options) (*run, func(), error) {
	unlock := func() {}
	if !opts.DryRun {
		var err error
		if unlock, err = lockMoves(ctx, opts.Store); err != nil {
			return nil, nil, err
		}
		if err := settle(ctx, opts.Store); err != nil {
			unlock()
			return nil, nil, err
		}
	}
	host, err := kernel.OpenHost()
	if err != nil {
		unlock()
		return nil, nil, err
	}
	r := &run{Options: opts, host: host, report: Report{DryRun: opts.DryRun, Attachments: []Outcome{}}}
	fail := func(err error) (*run, func(), error) {
		host.Close()
		unlock()
		return nil, nil, err
	}
	if r.devices, err = host.Devices(); err != nil {
		return fail(err)
	}
	if r.all, _, err = opts.Store.List(); err != nil {
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
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	unlock, err := store.LockMoves(ctx)
	if err != nil {
		return nil, fmt.Errorf("nothing was moved: %w: wait until it ends, and try again", err)
	}
	return unlock, nil
}

// uplink returns the device that attachments will move to. It waits for the device's carrier until the deadline: a NIC
// whose driver was just loaded needs seconds. A dry run does not wait.
func (r *run) uplink(ctx context.Context, deadline time.Time) (netstate.LiveDevice, error) {
	for {
		device, err := uplink(r.devices, r.From, r.To)
		waiting := err != nil && device.Up && !device.Carrier
		if !waiting || r.DryRun || time.Now().After(deadline) || ctx.Err() != nil {
			return device, err
		}
		pause(ctx)
		if r.devices, err = r.host.Devices(); err != nil {
			return device, err
		}
	}
}

// earlierIndex returns the index that the interface had when it was on the new parent before. It returns 0 if it was
// never there.
func (r *run) earlierIndex(p planned) int {
	note, err := r.Store.LoadMoving(p.record.Attachment.ContainerID, p.record.Attachment.IfName)
	if err != nil || len(p.to) == 0 || note.State == checkpoint.MoveBegun || baseName(note.From) != baseName(p.to) {
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

// carryOut checks everything, and then moves what can be moved.
func (r *run) carryOut(ctx context.Context, start time.Time) (Report, error) {
	r.look()
	r.leaveOutDeleted(ctx)
	if r.mayGoOn() {
		shared, err := r.shareParents(ctx)
		if err != nil {
			return Report{}, err
		}
		defer shared()
		if err := r.targets(ctx); err != nil {
			return Report{}, err
		}
		r.leaveOutDeleted(ctx)
	}
	switch {
	case ctx.Err() != nil:
		r.report.Interrupted = true
		r.unmake()
	case r.DryRun:
	case !r.mayGoOn():
		r.unmake()
	default:
		if err := r.writeJournal(); err != nil {
			r.unmake()
			return Report{}, err
		}
		r.sandboxes(ctx)
		r.verify(ctx)
		r.report.Interrupted = ctx.Err() != nil
	}
	return r.finish(start), nil
}

// shareParents keeps failed ADDs from removing VLAN devices that the move will use.
func (r *run) shareParents(ctx context.Context) (func(), error) {
	if r.DryRun {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	shared, err := r.Store.ShareParents(ctx)
	if err != nil {
		return nil, err
	}
	return shared.Release, nil
}

// mayGoOn says that there is something to move, and that the move may begin.
func (r *run) mayGoOn() bool {
	can, deleted := 0, 0
	for _, j := range r.moves {
		switch {
		case j.refused == "":
			can++
		case j.outcome.State == Deleted:
			deleted++
		}
	}
	return can > 0 && (can+deleted == len(r.moves) || r.Force) && (len(r.report.Problems) == 0 || r.Force)
}

// movable returns the jobs that can be moved.
func (r *run) movable() (some []*job) {
	for _, j := range r.moves {
		if j.refused == "" {
			some = append(some, j)
		}
	}
	return some
}

// unmake is for a run that moves nothing. It removes the VLAN devices that this run has made, unless somebody uses them
// by now.
func (r *run) unmake() {
	devices, err := r.host.Devices()
	if err != nil {
		return
	}
	for _, name := range slices.Backward(r.made) {
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
	r.made = nil
}

// keyOf returns a key that is different for each chain of parents.
func keyOf(chain []netstate.Device) (key string) {
	for _, d := range chain {
		key += fmt.Sprintf("%s %s %d %+v\n", d.Kind, d.Name, d.MTU, d.VLAN)
	}
	return key
}

// sameParents says that both chains have devices of the same names.
func sameParents(a, b []netstate.Device) bool {
	return slices.EqualFunc(a, b, func(x, y netstate.Device) bool { return x.Name == y.Name && x.Kind == y.Kind })
}

func outcomeOf(p planned) Outcome {
	o := Outcome{Attachment: p.record.Attachment, Pod: p.record.Pod, State: ToMove, From: nearest(p.record.Interface.Parents), To: nearest(p.to)}
	if p.refused != "" {
		o.State, o.Reason = Refused, p.refused
	}
	return o
}

func nearest(chain []netstate.Device) string {
	if len(chain) == 0 {
		return ""
	}
	return chain[0].Name
}

func (j *job) refuse(why string) {
	if j.refused == "" {
		j.refused, j.outcome.State, j.outcome.Reason = why, Refused, why
	}
}

func containerID(j *job) string { return j.record.Attachment.ContainerID }

func sameAttachment(key attachment.Key) func(*job) bool {
	return func(j *job) bool { return j.record.Attachment == key }
}
