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
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// GC forgets the checkpoints of this network's attachments that the runtime does not call valid any
// more, and whose network namespaces are proven gone: the runtime makes its list before it calls, and
// the sandbox of an ADD since then is not in it. What is kept is said on stderr. GC asks the IPAM plugin
// to do the same, and to keep the addresses of what is kept. It goes on after a failure and reports all.
// If the list of valid attachments is missing, it forgets nothing: an empty list is something else.
func (p Plugin) GC(args *skel.CmdArgs) error {
	config, store, err := beginGC(args)
	if err != nil {
		return err
	}
	ctx := context.Background()
	valid, listed, err := cniplugin.ValidAttachments(args.StdinData)
	if err != nil {
		return err
	}
	if !listed {
		fmt.Fprintln(os.Stderr, p.Name+": GC without cni.dev/valid-attachments: every checkpoint is kept")
		return delegate.New(args, config.Network, nil).GC(ctx)
	}
	left, err := forgetInvalid(ctx, store, config.Name, valid)
	err = cniplugin.Join(err, sweepAccess(ctx, store))
	if said := left.said(); said != "" {
		fmt.Fprintln(os.Stderr, printable.Line(p.Name+": "+said))
	}
	// A restore can still bring back what is left, and needs its addresses.
	if left.failed {
		return err
	}
	rest := *args
	var unlisted error
	if rest.StdinData, unlisted = cniplugin.WithValid(args.StdinData, left.attachments()); unlisted != nil {
		return cniplugin.Join(err, unlisted)
	}
	return cniplugin.Join(err, delegate.New(&rest, config.Network, nil).GC(ctx))
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

// leftover is what a GC has not forgotten although the runtime does not call it valid.
type leftover struct {
	// there are the attachments whose namespaces are not proven gone, each with why.
	there []checkpoint.Record
	why   map[attachment.Namespace]sandbox.Evidence
	// failed says that a checkpoint stayed that should have gone.
	failed bool
}

// said says what is left, for people. It is empty for nothing.
func (l leftover) said() string {
	var what []string
	for _, r := range l.there {
		what = append(what, r.Attachment.String()+": "+l.why[r.Namespace].Why)
	}
	return cniplugin.KeptByGC(what)
}

// attachments are what is left, as a list of valid attachments names it.
func (l leftover) attachments() (all []types.GCAttachment) {
	for _, r := range l.there {
		all = append(all, listedAs(r))
	}
	return all
}

func listedAs(r checkpoint.Record) types.GCAttachment {
	return types.GCAttachment{ContainerID: r.Attachment.ContainerID, IfName: r.Attachment.IfName}
}

// forgetInvalid forgets the network's checkpoints that are not valid and whose namespaces are proven gone. It first reads
// the checkpoints and then looks for the namespaces. What was written anew since it was read is not forgotten.
func forgetInvalid(ctx context.Context, store *checkpoint.Store, network string, valid map[types.GCAttachment]bool) (leftover, error) {
	records, unreadable, err := store.List()
	if err != nil {
		return leftover{failed: true}, cniplugin.Error(types.ErrIOFailure, "%v", err)
	}
	var errs []error
	for _, u := range unreadable {
		errs = append(errs, cniplugin.Error(types.ErrDecodingFailure, "kept, as its network is not known: %v", u.Err))
	}
	records = slices.DeleteFunc(records, func(r checkpoint.Record) bool {
		return r.Attachment.Network != network || valid[listedAs(r)]
	})
	left := leftover{why: proven(ctx, records)}
	var gone []checkpoint.Record
	for _, r := range records {
		if left.why[r.Namespace].State == sandbox.IsGone {
			gone = append(gone, r)
		} else {
			left.there = append(left.there, r)
		}
	}
	failed := forgetAll(ctx, store, gone)
	left.failed = errors.Join(failed...) != nil
	return left, cniplugin.Join(append(errs, failed...)...)
}

// proven says of the records' namespaces whether they are gone. It looks for them no longer than an operation may take.
func proven(ctx context.Context, records []checkpoint.Record) map[attachment.Namespace]sandbox.Evidence {
	var were []attachment.Namespace
	for _, r := range records {
		were = append(were, r.Namespace)
	}
	ctx, cancel := context.WithTimeout(ctx, flock.Patience)
	defer cancel()
	return sandbox.Prove(ctx, sandbox.SeesAllProcesses(), were...)
}

// forgetAll forgets the records and returns what failed. It works on all at once: none waits because somebody works on
// another sandbox.
func forgetAll(ctx context.Context, store *checkpoint.Store, records []checkpoint.Record) []error {
	failed := make([]error, len(records))
	var waiting sync.WaitGroup
	for i, r := range records {
		waiting.Go(func() {
			if err := forget(ctx, store, r); err != nil {
				failed[i] = cniplugin.Wrap(err, r.Attachment.String())
			}
		})
	}
	waiting.Wait()
	return failed
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
