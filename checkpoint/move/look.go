package move

import (
	"context"
	"errors"
	"fmt"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// inspectAll looks into the pods, and refuses what cannot be moved. An interrupt ends it.
func (r *moveRun) inspectAll(ctx context.Context) {
	movable := r.jobsThat((*job).isMovable)
	inparallel.Do(change.Workers(), len(movable), func(i int) {
		j := movable[i]
		if ctx.Err() != nil {
			return
		}
		if _, err := r.inspect(j.record); err != nil {
			j.refuse(printable.Joined(err))
		}
	})
	for _, j := range r.jobsThat((*job).isMovable) {
		if j.record.Interface.Link.Kind == netstate.KindMacvtap {
			r.report.Notes = append(r.report.Notes, fmt.Sprintf(
				"%s of %s is a macvtap: a program that has its /dev/tap file open has to open the new one", j.record.Interface.Link.Name, podName(j.record)))
		}
	}
}

// inspect opens the sandbox of the record, and returns the interface as it is now. The error says why the interface
// cannot be moved.
func (r *moveRun) inspect(record checkpoint.Record) (live netstate.Interface, err error) {
	sandbox, err := kernel.OpenSame(record.Namespace)
	if err != nil {
		return live, err
	}
	defer sandbox.Close()
	return r.inspectIn(sandbox, record)
}

func (r *moveRun) inspectIn(sandbox *kernel.Namespace, record checkpoint.Record) (live netstate.Interface, err error) {
	if live, err = r.capture(sandbox, record.Interface); err != nil {
		return live, fmt.Errorf("it is not as recorded: %w: relink restore", err)
	}
	recorded, err := r.Store.Effective(record, sandbox.Exists)
	if err != nil {
		return live, err
	}
	beside, err := r.readSurroundings(sandbox, record, live)
	if err != nil {
		return live, err
	}
	if reason := refusal(recorded, live, beside); reason != "" {
		return live, errors.New(reason)
	}
	return live, nil
}

// readSurroundings returns what else the sandbox has.
func (r *moveRun) readSurroundings(sandbox *kernel.Namespace, record checkpoint.Record, live netstate.Interface) (b surroundings, err error) {
	if b.devices, err = sandbox.Devices(); err != nil {
		return b, err
	}
	parents, err := sandbox.ParentsIn(r.host)
	if err != nil {
		return b, err
	}
	for index, parent := range parents {
		if parent == parents[live.Link.Index] && index != live.Link.Index {
			b.siblings = append(b.siblings, index)
		}
	}
	for i := range r.records {
		if r.records[i].Attachment.ContainerID == record.Attachment.ContainerID {
			b.recorded = append(b.recorded, r.records[i].Interface.Link.Name)
		}
	}
	return b, nil
}

// capture returns the interface as it is now, as far as a new interface gets it from the old one. The record can also have settings with
// their default values.
func (r *moveRun) capture(sandbox *kernel.Namespace, recorded netstate.Interface) (netstate.Interface, error) {
	extent := kernel.CheckpointExtent
	extent.Settings = kernel.ExtentOf(recorded).Settings
	extent.ParentsCarried = false // Addresses and routes of the host's devices stay there.
	return kernel.Capture(r.host, sandbox, r.devices, recorded.Link.Name, extent)
}

func podName(record checkpoint.Record) string { return record.Pod.Or(record.Attachment.ContainerID) }
