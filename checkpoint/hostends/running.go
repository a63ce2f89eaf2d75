package hostends

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// AccessChange is what became of one attachment.
type AccessChange string

// All of them.
const (
	Added          AccessChange = "given"
	Removed        AccessChange = "taken away"
	AlreadyPresent AccessChange = "there already"
	AlreadyAbsent  AccessChange = "not there"
)

// Add gives host access to a running pod, and notes it in the checkpoint. A pod that has it already with the same options keeps it;
// with others, Add fails.
func Add(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, listed checkpoint.Record, options hostaccess.Options) (change AccessChange, err error) {
	err = store.WithSandbox(ctx, listed, func(s *checkpoint.Sandbox) (err error) {
		r, sandbox := s.Record, s.Namespace
		if r.HostAccess != nil {
			if !reflect.DeepEqual(r.HostAccess.Options, options) {
				return fmt.Errorf("it has host access with other settings: run relink host-access remove %s first", r.Pod)
			}
			change = AlreadyPresent
			return nil
		}
		var undo cniplugin.Undo
		defer func() {
			if err != nil {
				err = errors.Join(err, undo.Run())
			}
		}()
		live := r.Interface
		if live.Addresses, err = assignedAddresses(r); err != nil {
			return err
		}
		if current, err := sandbox.CurrentName(live.Link); err == nil {
			live.Link.Name = current
		}
		target := Target{Store: store, Key: r.Attachment, Pod: r.Pod, Interface: live, Host: host, Sandbox: sandbox}
		if r.HostAccess, err = AddPath(ctx, target, options, &undo); err != nil {
			return err
		}
		change = Added
		return store.Save(r)
	})
	return change, err
}

// assignedAddresses are the recorded addresses that the result of the ADD has. A pod can give itself others, such as that of the node's
// gateway. The node must not send there.
func assignedAddresses(r checkpoint.Record) (addresses []netstate.Address, err error) {
	assigned := r.CNI.Addresses()
	if len(assigned) == 0 {
		return nil, fmt.Errorf("%w that relink can be sure of: nobody knows the result of its ADD", ErrNoAddress)
	}
	return slices.DeleteFunc(slices.Clone(r.Interface.Addresses), func(a netstate.Address) bool { return !slices.Contains(assigned, a.Prefix.Addr()) }), nil
}

// Remove takes the host access from the checkpoint of a running pod, and then from the pod. It can be killed and run again: then it also
// takes away what a killed Add or Remove has left.
func Remove(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, listed checkpoint.Record) (change AccessChange, err error) {
	err = store.WithSandbox(ctx, listed, func(s *checkpoint.Sandbox) error {
		r, sandbox := s.Record, s.Namespace
		if change = AlreadyAbsent; r.HostAccess == nil {
			removeErr := errors.Join(RemovePath(ctx, store, host, hostaccess.HostName(r.Attachment), len(store.MasqueradeFamilies()) > 0))
			return errors.Join(clearSandbox(store, r.Attachment, sandbox), removeErr)
		}
		pod := r.HostAccessPod(host, sandbox)
		// While the checkpoint has the host access, a DEL looks for a rule of iptables. Later, it looks only if it finds the pair.
		if pod.Masquerade {
			if err := errors.Join(removeMasquerade(ctx, store, host, pod.HostName)); err != nil {
				return err
			}
		}
		r.HostAccess = nil
		if err := store.Save(r); err != nil {
			return err
		}
		change = Removed
		removeErr := errors.Join(RemovePath(ctx, store, host, pod.HostName, pod.Masquerade || len(store.MasqueradeFamilies()) > 0))
		return errors.Join(pod.Clear(), removeErr)
	})
	return change, err
}
