package attach

import (
	"context"
	"errors"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/hostends"
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
	c, err := p.beginRecorded(args, false)
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
	kept, reasons, err := forgetInvalid(ctx, c.store, c.Name, valid)
	// A pair is not among what a kill has left: it goes with its sandbox, and a sandbox that lives may need it.
	_, sweepErr := hostends.Sweep(ctx, c.store, false)
	err = cniplugin.Join(err, c.accessError(sweepErr))
	if message := cniplugin.KeptByGC(reasons); message != "" {
		p.warn("%s", message)
	}
	if kept == nil {
		return err
	}
	// A restore can still bring back what is left, and needs its addresses.
	rest := *args
	var unlisted error
	if rest.StdinData, unlisted = cniplugin.WithValid(args.StdinData, kept); unlisted != nil {
		return cniplugin.Join(err, unlisted)
	}
	c.ipam = delegate.New(&rest, c.Network, nil)
	return cniplugin.Join(err, c.callIPAM(ipamPlugin.GC))
}

func gcAttachment(r checkpoint.Record) types.GCAttachment {
	return types.GCAttachment{ContainerID: r.Attachment.ContainerID, IfName: r.Attachment.IfName}
}

// forgetInvalid forgets the network's checkpoints that are not valid and whose namespaces are proven gone. It first reads
// the checkpoints and then looks for the namespaces, no longer than an operation may take. What was written anew since it was read is not
// forgotten. kept are those that stay, nil if nobody knows. reasons say why those stay that are not proven gone.
func forgetInvalid(ctx context.Context, store *checkpoint.Store, network string, valid map[types.GCAttachment]bool) (kept []types.GCAttachment, reasons []string, err error) {
	records, unreadable, err := store.List()
	if err != nil {
		return nil, nil, cniplugin.Error(types.ErrIOFailure, "%v", err)
	}
	var errs []error
	for _, u := range unreadable {
		errs = append(errs, cniplugin.Error(types.ErrDecodingFailure, "kept, as its network is not known: %v", u.Err))
	}
	records = slices.DeleteFunc(records, func(r checkpoint.Record) bool {
		return r.Attachment.Network != network || valid[gcAttachment(r)]
	})
	var namespaces []attachment.Namespace
	for _, r := range records {
		namespaces = append(namespaces, r.Namespace)
	}
	bounded, cancel := context.WithTimeout(ctx, flock.DefaultTimeout)
	defer cancel()
	evidence := sandbox.Prove(bounded, sandbox.SeesAllProcesses(), namespaces...)
	kept = []types.GCAttachment{}
	var dead []checkpoint.Record
	for _, r := range records {
		if found := evidence[r.Namespace]; found.Verdict != sandbox.VerdictGone {
			kept, reasons = append(kept, gcAttachment(r)), append(reasons, r.Attachment.String()+": "+found.Reason)
			continue
		}
		dead = append(dead, r)
	}
	for i, err := range change.NewRunner(store).Run(ctx, dead, func(i int) error { return store.ForgetListed(dead[i], nil) }) {
		if err != nil && !errors.Is(err, checkpoint.ErrWrittenAnew) {
			kept, errs = append(kept, gcAttachment(dead[i])), append(errs, cniplugin.Wrap(lockError(err), dead[i].Attachment.String()))
		}
	}
	return kept, reasons, cniplugin.Join(errs...)
}
