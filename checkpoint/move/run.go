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
	// Force moves what can be moved, and leaves out the rest. Without Force, nothing is moved if something that is
	// selected cannot be.
	Force bool
	// NoProbe does not ask whether the pods' gateways answer on To.
	NoProbe bool
	// Wait is how long to wait at most until To has carrier and the gateways answer there.
	Wait time.Duration
	// DryRun plans and changes nothing.
	DryRun bool
	// Journal is a file that gets what is needed to move back (Back). Empty: none.
	Journal string
	// Progress is called after each sandbox with the number of those that are done. It may be nil.
	Progress func(done, total int)
}

// run is one move under way.
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
}

// Run moves what is on opts.From to opts.To. What cannot be moved is known before anything is touched. If one attachment
// fails, it stays where it is, and the others go on. The report has all of them. An error says that nothing was done.
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

// begin opens what a move needs, and finishes what an earlier one has left.
func begin(ctx context.Context, opts Options) (*run, func(), error) {
	if !opts.DryRun {
		if err := Settle(ctx, opts.Store); err != nil {
			return nil, nil, err
		}
	}
	host, err := kernel.OpenHost()
	if err != nil {
		return nil, nil, err
	}
	r := &run{Options: opts, host: host, report: Report{DryRun: opts.DryRun, Attachments: []Outcome{}}}
	fail := func(err error) (*run, func(), error) {
		host.Close()
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
	}, nil
}

// uplink returns the device that attachments are to be moved to. It waits until the deadline for its carrier: a NIC whose
// driver was just loaded needs seconds for it. A dry run waits for nothing.
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

// earlierIndex returns the index that the interface had on the parent to which it goes back, 0 if it was never there.
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
	if r.mayGoOn() {
		shared, err := r.shareParents(ctx)
		if err != nil {
			return Report{}, err
		}
		defer shared()
		if err := r.targets(ctx); err != nil {
			return Report{}, err
		}
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

// shareParents keeps failed ADDs from removing the VLAN devices that the move is about to use.
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

// mayGoOn says that there is something to move, and that nothing stands in the way of it.
func (r *run) mayGoOn() bool {
	can := 0
	for _, j := range r.moves {
		if j.refused == "" {
			can++
		}
	}
	return can > 0 && (can == len(r.moves) || r.Force) && (len(r.report.Problems) == 0 || r.Force)
}

// movable returns the moves that nothing stands in the way of.
func (r *run) movable() (some []*job) {
	for _, j := range r.moves {
		if j.refused == "" {
			some = append(some, j)
		}
	}
	return some
}

// unmake removes the VLAN devices that this run has made, unless somebody uses them by now. It is for a run that moves
// nothing.
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

// keyOf returns what tells chains of parents apart.
func keyOf(chain []netstate.Device) (key string) {
	for _, d := range chain {
		key += fmt.Sprintf("%s %s %d %+v\n", d.Kind, d.Name, d.MTU, d.VLAN)
	}
	return key
}

// sameParents says that both chains have the same devices by their names.
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
