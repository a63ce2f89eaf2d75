package access

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

// Done is what became of one attachment.
type Done string

// All of them.
const (
	Given   Done = "given"
	Taken   Done = "taken away"
	Had     Done = "there already"
	HadNone Done = "not there"
)

// Add gives host access to a running pod, and notes it in the checkpoint. A pod that has it already with the same options keeps it;
// with others, Add fails.
func Add(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, listed checkpoint.Record, asked hostaccess.Options) (done Done, err error) {
	err = withSandbox(ctx, store, listed, func(r checkpoint.Record, sandbox *kernel.Namespace) (err error) {
		if r.HostAccess != nil {
			if !reflect.DeepEqual(r.HostAccess.Options, asked) {
				return fmt.Errorf("it has host access with other settings: run relink host-access remove %s first", r.Pod)
			}
			done = Had
			return nil
		}
		var undo cniplugin.Undo
		defer func() {
			if err != nil {
				err = errors.Join(err, undo.Run())
			}
		}()
		live := r.Interface
		if live.Addresses, err = given(r); err != nil {
			return err
		}
		if now, err := sandbox.CurrentName(live.Link); err == nil {
			live.Link.Name = now
		}
		to := To{Store: store, Key: r.Attachment, Pod: r.Pod, Interface: live, Host: host, Sandbox: sandbox}
		if r.HostAccess, err = Give(ctx, to, asked, &undo); err != nil {
			return err
		}
		done = Given
		return store.Save(r)
	})
	return done, err
}

// given are the recorded addresses that the runtime was told at the ADD. A pod can give itself others, such as that of the node's
// gateway. The node must not send there.
func given(r checkpoint.Record) (addresses []netstate.Address, err error) {
	told := r.CNI.Addresses()
	if len(told) == 0 {
		return nil, fmt.Errorf("%w that relink can be sure of: nobody knows the result of its ADD", ErrNoAddress)
	}
	return slices.DeleteFunc(slices.Clone(r.Interface.Addresses), func(a netstate.Address) bool { return !slices.Contains(told, a.Prefix.Addr()) }), nil
}

// Remove takes the host access from the checkpoint of a running pod, and then from the pod. It can be killed and run again: then it also
// takes away what a killed Add or Remove has left.
func Remove(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, listed checkpoint.Record) (done Done, err error) {
	err = withSandbox(ctx, store, listed, func(r checkpoint.Record, sandbox *kernel.Namespace) error {
		if done = HadNone; r.HostAccess == nil {
			taken := errors.Join(Take(ctx, store, host, hostaccess.HostName(r.Attachment), len(store.Masquerades()) > 0))
			return errors.Join(clearSandbox(store, r.Attachment, sandbox), taken)
		}
		pod := r.AccessIn(host, sandbox)
		// While the checkpoint says so, a DEL looks for a rule of iptables. Later, it looks if it finds the pair.
		if pod.Masquerade {
			if err := errors.Join(takeMasquerade(ctx, store, host, pod.HostName)); err != nil {
				return err
			}
		}
		r.HostAccess = nil
		if err := store.Save(r); err != nil {
			return err
		}
		done = Taken
		taken := errors.Join(Take(ctx, store, host, pod.HostName, pod.Masquerade || len(store.Masquerades()) > 0))
		return errors.Join(pod.Clear(), taken)
	})
	return done, err
}

// withSandbox calls f with the record as it is now and its sandbox, under the sandbox's lock.
func withSandbox(ctx context.Context, store *checkpoint.Store, listed checkpoint.Record, f func(checkpoint.Record, *kernel.Namespace) error) error {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	unlock, err := store.Lock(waiting, listed.Attachment.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := store.Reload(listed)
	if err != nil {
		return err
	}
	sandbox, err := kernel.OpenSame(r.Namespace)
	if err != nil {
		return err
	}
	defer sandbox.Close()
	return f(r, sandbox)
}
