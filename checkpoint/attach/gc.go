package attach

import (
	"context"
	"errors"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/delegate"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// GC forgets the checkpoints of this network's attachments that the runtime does not call valid any
// more, and whose network namespaces are proven gone: the runtime makes its list before it calls, and
// the sandbox of an ADD since then is not in it. What is kept is said on stderr. GC asks the IPAM plugin
// to do the same, and to keep the addresses of what is kept. It goes on after a failure and reports all.
// If the list of valid attachments is missing, it forgets nothing: an empty list is something else.
func (p Plugin) GC(args *skel.CmdArgs) error {
	c, err := p.beginRecorded(args)
	if err != nil {
		return err
	}
	ctx := context.Background()
	valid, listed, err := cniplugin.ValidAttachments(args.StdinData)
	if err != nil {
		return err
	}
	if !listed {
		p.warn("GC without cni.dev/valid-attachments: every checkpoint is kept")
		return c.callIPAM(ipamPlugin.GC)
	}
	kept, err := forgetInvalid(ctx, c.store, c.Name, valid)
	err = cniplugin.Join(err, sweepHostAccess(ctx, c.store))
	if message := cniplugin.KeptByGC(kept.reasons); message != "" {
		p.warn("%s", message)
	}
	// A restore can still bring back what is left, and needs its addresses.
	if kept.failed {
		return err
	}
	rest := *args
	var unlisted error
	if rest.StdinData, unlisted = cniplugin.WithValid(args.StdinData, kept.attachments); unlisted != nil {
		return cniplugin.Join(err, unlisted)
	}
	c.ipam = delegate.New(&rest, c.Network, nil)
	return cniplugin.Join(err, c.callIPAM(ipamPlugin.GC))
}

// keptCheckpoints is what a GC has not forgotten although the runtime does not call it valid.
type keptCheckpoints struct {
	// attachments are those whose namespaces are not proven gone. reasons say why each of them stays.
	attachments []types.GCAttachment
	reasons     []string
	// failed says that a checkpoint stayed that should have gone.
	failed bool
}

func gcAttachment(r checkpoint.Record) types.GCAttachment {
	return types.GCAttachment{ContainerID: r.Attachment.ContainerID, IfName: r.Attachment.IfName}
}

// forgetInvalid forgets the network's checkpoints that are not valid and whose namespaces are proven gone. It first reads
// the checkpoints and then looks for the namespaces. What was written anew since it was read is not forgotten.
func forgetInvalid(ctx context.Context, store *checkpoint.Store, network string, valid map[types.GCAttachment]bool) (keptCheckpoints, error) {
	records, unreadable, err := store.List()
	if err != nil {
		return keptCheckpoints{failed: true}, cniplugin.Error(types.ErrIOFailure, "%v", err)
	}
	var errs []error
	for _, u := range unreadable {
		errs = append(errs, cniplugin.Error(types.ErrDecodingFailure, "kept, as its network is not known: %v", u.Err))
	}
	records = slices.DeleteFunc(records, func(r checkpoint.Record) bool {
		return r.Attachment.Network != network || valid[gcAttachment(r)]
	})
	var kept keptCheckpoints
	var dead []checkpoint.Record
	evidence := proveNamespaces(ctx, records)
	for _, r := range records {
		if found := evidence[r.Namespace]; found.Verdict == sandbox.VerdictGone {
			dead = append(dead, r)
		} else {
			kept.attachments, kept.reasons = append(kept.attachments, gcAttachment(r)), append(kept.reasons, r.Attachment.String()+": "+found.Reason)
		}
	}
	failed := forgetAll(ctx, store, dead)
	kept.failed = errors.Join(failed...) != nil
	return kept, cniplugin.Join(append(errs, failed...)...)
}

// proveNamespaces says of the records' namespaces whether they are gone. It looks for them no longer than an operation may take.
func proveNamespaces(ctx context.Context, records []checkpoint.Record) map[attachment.Namespace]sandbox.Evidence {
	var namespaces []attachment.Namespace
	for _, r := range records {
		namespaces = append(namespaces, r.Namespace)
	}
	ctx, cancel := context.WithTimeout(ctx, flock.DefaultTimeout)
	defer cancel()
	return sandbox.Prove(ctx, sandbox.SeesAllProcesses(), namespaces...)
}

// forgetAll forgets the records and returns what failed.
func forgetAll(ctx context.Context, store *checkpoint.Store, records []checkpoint.Record) []error {
	var ids []string
	for _, r := range records {
		ids = append(ids, r.Attachment.ContainerID)
	}
	failed := make([]error, len(records))
	store.EachSandbox(ctx, ids, func(i int, err error) {
		if err == nil {
			err = store.ForgetListed(records[i], nil)
		}
		if err != nil && !errors.Is(err, checkpoint.ErrWrittenAnew) {
			failed[i] = cniplugin.Wrap(lockError(err), records[i].Attachment.String())
		}
	})
	return failed
}
