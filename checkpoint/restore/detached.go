package restore

import (
	"context"
	"errors"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
)

// dropDetached looks a second time at what differs, and drops what has no checkpoint any more. A dry run takes no lock, so it can read the
// checkpoint before a DEL, and look at the interface after it.
func (r *restoreRun) dropDetached(ctx context.Context, report *Report) {
	if !slices.ContainsFunc(report.Attachments, Outcome.Differs) {
		return
	}
	if !checkpoint.AwaitSettled(ctx) {
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
