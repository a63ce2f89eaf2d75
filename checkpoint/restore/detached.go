package restore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/wait"
)

// detachDelay is how long a dry run gives a DEL that is under way to forget its checkpoint. A dry run takes no
// lock, so it can read the checkpoint before the DEL and look at the interface after it.
const detachDelay = 300 * time.Millisecond

// dropDetached looks a second time at what differs, and drops what has no checkpoint any more.
func (r *restoreRun) dropDetached(ctx context.Context, report *Report) {
	if !slices.ContainsFunc(report.Attachments, Outcome.Differs) {
		return
	}
	if !wait.Sleep(ctx, detachDelay) {
		return // The report of the first look counts.
	}
	report.Attachments = slices.DeleteFunc(report.Attachments, func(o Outcome) bool {
		if !o.Differs() || o.Attachment.IfName == "" { // Without a name it is a directory that cannot be read.
			return false
		}
		_, err := r.Store.Load(o.Attachment.ContainerID, o.Attachment.IfName)
		return errors.Is(err, checkpoint.ErrNoCheckpoint)
	})
}
