package hostends

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// The states of an attachment whose host access was to change.
const (
	Added          change.State = "given"
	Removed        change.State = "taken away"
	AlreadyPresent change.State = "there already"
	AlreadyAbsent  change.State = "not there"
	// NotNeeded: the pod has it by another of its interfaces.
	NotNeeded change.State = "not needed"
)

// ChangeReport says what became of each attachment.
type ChangeReport = change.Report[change.Outcome]

// Add gives host access to running pods, and notes it in their checkpoints. A pod that has it already with the same options keeps it;
// with others, it fails. A pod has it by one of its interfaces: that the others cannot have it too is no failure.
func Add(ctx context.Context, store *checkpoint.Store, records []checkpoint.Record, options hostaccess.Options) (ChangeReport, error) {
	return changeAll(ctx, store, records, func(host *kernel.Namespace, s *checkpoint.Sandbox) (change.State, error) {
		return addTo(ctx, store, host, s, options)
	})
}

// Remove takes the host access from the checkpoints of running pods, and then from the pods. It can be killed and run again: then it also
// takes away what a killed Add or Remove has left.
func Remove(ctx context.Context, store *checkpoint.Store, records []checkpoint.Record) (ChangeReport, error) {
	report, err := changeAll(ctx, store, records, func(host *kernel.Namespace, s *checkpoint.Sandbox) (change.State, error) {
		return removeFrom(ctx, store, host, s)
	})
	_, sweepErr := Sweep(ctx, store, false)
	return report, errors.Join(err, sweepErr)
}

func changeAll(
	ctx context.Context, store *checkpoint.Store, records []checkpoint.Record, apply func(*kernel.Namespace, *checkpoint.Sandbox) (change.State, error),
) (report ChangeReport, err error) {
	host, err := kernel.OpenHost()
	if err != nil {
		return report, err
	}
	defer host.Close()
	report.Outcomes = make([]change.Outcome, len(records))
	errs := change.NewRunner(store).Run(ctx, records, func(i int) error {
		return store.OpenSandbox(records[i], func(s *checkpoint.Sandbox) (err error) {
			report.Outcomes[i].State, err = apply(host, s)
			return err
		})
	})
	accessByContainer := map[string]string{}
	for i, r := range records {
		o := &report.Outcomes[i]
		o.Attachment, o.Pod = r.Attachment, r.Pod
		switch {
		case errs[i] != nil:
			o.Fail(errs[i])
		case o.State == Added || o.State == AlreadyPresent:
			accessByContainer[o.Attachment.ContainerID] = o.Attachment.IfName
		}
	}
	for i := range report.Outcomes {
		o := &report.Outcomes[i]
		if ifName := accessByContainer[o.Attachment.ContainerID]; ifName != "" && errors.Is(errs[i], ErrOtherPath) {
			o.State, o.Reason = NotNeeded, "the pod has it by "+ifName
		}
	}
	return report, nil
}

func addTo(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, s *checkpoint.Sandbox, options hostaccess.Options) (_ change.State, err error) {
	r := s.Record
	if r.HostAccess != nil {
		if !reflect.DeepEqual(r.HostAccess.Options, options) {
			return "", fmt.Errorf("it has host access with other settings: run relink host-access remove %s first", r.Pod)
		}
		return AlreadyPresent, nil
	}
	var undo cniplugin.Undo
	defer func() {
		if err != nil {
			err = errors.Join(err, undo.Run())
		}
	}()
	live := r.Interface
	if live.Addresses, err = assignedAddresses(r); err != nil {
		return "", err
	}
	if current, err := s.Namespace.CurrentName(live.Link); err == nil {
		live.Link.Name = current
	}
	target := Target{Store: store, Key: r.Attachment, Pod: r.Pod, Interface: live, Host: host, Sandbox: s.Namespace}
	if r.HostAccess, err = AddPath(ctx, target, options, &undo); err != nil {
		return "", err
	}
	return Added, store.Save(r)
}

func removeFrom(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, s *checkpoint.Sandbox) (change.State, error) {
	r := s.Record
	if r.HostAccess == nil {
		return AlreadyAbsent, removeLeftovers(ctx, store, host, s.Namespace, r.Attachment)
	}
	pod := r.HostAccessPod(host, s.Namespace)
	r.HostAccess = nil
	if err := store.Save(r); err != nil {
		return "", err
	}
	return Removed, errors.Join(pod.Clear(), RemovePath(ctx, store, host, r.Attachment))
}

// assignedAddresses are the recorded addresses that the result of the ADD has. A pod can give itself others, such as that of the node's
// gateway. The node must not send there.
func assignedAddresses(r checkpoint.Record) (addresses []netstate.Address, err error) {
	assigned := attachment.ResultAddresses(r.CNI.Result)
	if len(assigned) == 0 {
		return nil, fmt.Errorf("%w that relink can be sure of: nobody knows the result of its ADD", hostaccess.ErrNoAddress)
	}
	return slices.DeleteFunc(slices.Clone(r.Interface.Addresses), func(a netstate.Address) bool { return !slices.Contains(assigned, a.Prefix.Addr()) }), nil
}
