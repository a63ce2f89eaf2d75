package attach

import (
	"context"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/cniplugin"
)

// GC forgets the checkpoints of this network's attachments that the runtime does
// not call valid any more, and asks the IPAM plugin to do the same. It goes on
// after a failure and reports all. Without a list of valid attachments, which is
// not the same as an empty one, nothing is forgotten.
func (p Plugin) GC(args *skel.CmdArgs) error {
	var config cniplugin.Config
	if err := cniplugin.Decode(args.StdinData, &config); err != nil {
		return err
	}
	ctx := context.Background()
	ipam := cniplugin.IPAM{Type: config.IPAM.Type, Config: args.StdinData}
	if !cniplugin.HasAttachmentList(args.StdinData) {
		fmt.Fprintln(os.Stderr, p.Name+": GC without cni.dev/valid-attachments: every checkpoint is kept")
		return ipam.GC(ctx)
	}
	store := checkpoint.OpenStore(config.CheckpointDir)
	return cniplugin.Join(forgetInvalid(ctx, store, config), ipam.GC(ctx))
}

func forgetInvalid(ctx context.Context, store *checkpoint.Store, config cniplugin.Config) error {
	valid := make(map[types.GCAttachment]bool, len(config.ValidAttachments))
	for _, a := range config.ValidAttachments {
		valid[a] = true
	}
	records, unreadable, err := store.List()
	if err != nil {
		return cniplugin.Error(types.ErrIOFailure, "%v", err)
	}
	var errs []error
	for _, u := range unreadable {
		errs = append(errs, cniplugin.Error(types.ErrDecodingFailure, "kept, as its network is not known: %v", u.Err))
	}
	for _, r := range records {
		a := types.GCAttachment{ContainerID: r.Attachment.ContainerID, IfName: r.Attachment.IfName}
		if r.Attachment.Network != config.Name || valid[a] {
			continue
		}
		if err := forget(ctx, store, r); err != nil {
			errs = append(errs, cniplugin.Error(types.ErrIOFailure, "%s: %v", r.Attachment, err))
		}
	}
	return cniplugin.Join(errs...)
}

func forget(ctx context.Context, store *checkpoint.Store, r checkpoint.Record) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err := store.Lock(ctx, r.Attachment.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	// The attachment may have been made anew since the list was read.
	now, err := store.Reload(r)
	if err == nil && now.Namespace != r.Namespace {
		return nil
	}
	return store.Forget(r.Attachment.ContainerID, r.Attachment.IfName)
}
