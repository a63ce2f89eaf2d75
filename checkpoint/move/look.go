package move

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// workersPerCPU is how many sandboxes are handled at the same time for each CPU. Most of them wait for their turn:
// pkg/kernel makes only one change in the kernel at a time.
const workersPerCPU = 4

func workers() *errgroup.Group {
	group := &errgroup.Group{}
	group.SetLimit(workersPerCPU * runtime.GOMAXPROCS(0))
	return group
}

// look looks into the pods, and refuses what cannot be moved.
func (r *run) look() {
	group := workers()
	for _, j := range r.movable() {
		group.Go(func() error {
			if _, err := r.inspect(j.record); err != nil {
				j.refuse(printable.Joined(err))
			}
			return nil
		})
	}
	_ = group.Wait() // The outcomes have the errors.
	for _, j := range r.movable() {
		if j.record.Interface.Link.Kind == netstate.KindMacvtap {
			r.report.Notes = append(r.report.Notes, fmt.Sprintf(
				"%s of %s is a macvtap: a program that has its /dev/tap file open has to open the new one", j.record.Interface.Link.Name, podOf(j.record)))
		}
	}
}

// inspect opens the sandbox of the record, and returns the interface as it is now. The error says why the interface
// cannot be moved.
func (r *run) inspect(record checkpoint.Record) (live netstate.Interface, err error) {
	sandbox, err := openSandbox(record.Namespace)
	if err != nil {
		return live, err
	}
	defer sandbox.Close()
	return r.inspectIn(sandbox, record)
}

func (r *run) inspectIn(sandbox *kernel.Namespace, record checkpoint.Record) (live netstate.Interface, err error) {
	if live, err = kernel.Capture(r.host, sandbox, r.devices, record.Interface.Link.Name, wholeOf(record.Interface)); err != nil {
		return live, fmt.Errorf("it is not as recorded: %w: relink restore", err)
	}
	recorded, err := r.Store.Wanted(record, sandbox.Exists)
	if err != nil {
		return live, err
	}
	beside, err := r.beside(sandbox, record, live)
	if err != nil {
		return live, err
	}
	if why := refusal(recorded, live, beside); why != "" {
		return live, errors.New(why)
	}
	return live, nil
}

// beside returns what else the sandbox has.
func (r *run) beside(sandbox *kernel.Namespace, record checkpoint.Record, live netstate.Interface) (b surroundings, err error) {
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
	for i := range r.all {
		if r.all[i].Attachment.ContainerID == record.Attachment.ContainerID {
			b.recorded = append(b.recorded, r.all[i].Interface.Link.Name)
		}
	}
	return b, nil
}

// wholeOf returns the extent that a new interface gets from the old one. The record can also have settings with their
// default values.
func wholeOf(recorded netstate.Interface) kernel.Extent {
	extent := kernel.Everything
	extent.Settings = kernel.ExtentOf(recorded).Settings
	extent.ParentsCarried = false // Addresses and routes of the host's devices stay there.
	return extent
}

// openSandbox opens the sandbox of the record.
func openSandbox(at attachment.Namespace) (*kernel.Namespace, error) { return kernel.OpenSame(at) }

func podOf(record checkpoint.Record) string {
	if record.Pod.Name != "" {
		return record.Pod.String()
	}
	return record.Attachment.ContainerID
}
