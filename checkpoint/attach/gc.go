package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/delegate"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// GC forgets the checkpoints of this network's attachments that the runtime does not call valid any
// more, and whose network namespaces are proven gone: the runtime makes its list before it calls, and
// the sandbox of an ADD since then is not in it. GC asks the IPAM plugin to do the same. It goes on
// after a failure and reports all. If the list of valid attachments is missing, it forgets nothing: an
// empty list is something else.
func (p Plugin) GC(args *skel.CmdArgs) error {
	config, store, err := beginGC(args)
	if err != nil {
		return err
	}
	ctx := context.Background()
	ipam := delegate.New(args, config.Network, nil)
	valid, listed, err := cniplugin.ValidAttachments(args.StdinData)
	if err != nil {
		return err
	}
	if !listed {
		fmt.Fprintln(os.Stderr, p.Name+": GC without cni.dev/valid-attachments: every checkpoint is kept")
		return ipam.GC(ctx)
	}
	kept, err := forgetInvalid(ctx, store, config.Name, valid)
	if kept {
		// A restore can still bring those back, and needs their addresses.
		return err
	}
	return cniplugin.Join(err, ipam.GC(ctx))
}

// beginGC reads what a GC needs of the configuration: no more, so that a wrong key elsewhere in it
// keeps nothing from being given up.
func beginGC(args *skel.CmdArgs) (cniplugin.Config, *checkpoint.Store, error) {
	read, err := cniplugin.ReadDetached(args.StdinData)
	if err != nil {
		return cniplugin.Config{}, nil, err
	}
	config, err := read.Config()
	if err != nil {
		return config, nil, err
	}
	store, err := netconf.OpenStore(config)
	return config, store, err
}

// forgetInvalid forgets them. kept says that a checkpoint stayed that should have gone.
func forgetInvalid(ctx context.Context, store *checkpoint.Store, network string, valid map[types.GCAttachment]bool) (kept bool, err error) {
	records, unreadable, err := store.List()
	if err != nil {
		return true, cniplugin.Error(types.ErrIOFailure, "%v", err)
	}
	var errs []error
	for _, u := range unreadable {
		errs = append(errs, cniplugin.Error(types.ErrDecodingFailure, "kept, as its network is not known: %v", u.Err))
	}
	records = slices.DeleteFunc(records, func(r checkpoint.Record) bool {
		return r.Attachment.Network != network || valid[types.GCAttachment{ContainerID: r.Attachment.ContainerID, IfName: r.Attachment.IfName}]
	})
	gone := provenGone(ctx, records)
	failed := make([]error, len(records))
	var waiting sync.WaitGroup
	for i, r := range records {
		if !gone[r.Namespace] {
			fmt.Fprintf(os.Stderr, "GC keeps the checkpoint of %s: the runtime does not list it, but its network namespace may be there\n", r.Attachment)
			continue
		}
		// All at once: none waits because somebody works on another sandbox.
		waiting.Go(func() {
			if err := forget(ctx, store, r); err != nil {
				failed[i] = cniplugin.Wrap(err, r.Attachment.String())
			}
		})
	}
	waiting.Wait()
	return errors.Join(failed...) != nil, cniplugin.Join(append(errs, failed...)...)
}

// provenGone returns the namespaces of the records that are proven gone.
func provenGone(ctx context.Context, records []checkpoint.Record) map[attachment.Namespace]bool {
	var were []attachment.Namespace
	for _, r := range records {
		were = append(were, r.Namespace)
	}
	return sandbox.Gone(ctx, sandbox.SeesAllProcesses(), were...)
}

func forget(ctx context.Context, store *checkpoint.Store, r checkpoint.Record) error {
	ctx, cancel := context.WithTimeout(ctx, flock.Patience)
	defer cancel()
	unlock, err := store.Lock(ctx, r.Attachment.ContainerID)
	if err != nil {
		return lockError(err, flock.Patience)
	}
	defer unlock()
	if _, err := store.ForgetRead(r); err != nil {
		return cniplugin.Error(types.ErrIOFailure, "%v", err)
	}
	return nil
}
