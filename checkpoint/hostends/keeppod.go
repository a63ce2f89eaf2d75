package hostends

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
)

// reconcilePod makes right what follows from the node, and notes what does not.
func (k *Reconciler) reconcilePod(r checkpoint.Record, node hostaccess.Node) (steps []string, err error) {
	sandbox, err := kernel.OpenSame(r.Namespace)
	if errors.Is(err, kernel.ErrNoNamespace) || errors.Is(err, attachment.ErrOtherNamespace) {
		return nil, nil // Its DEL comes, or a GC.
	}
	if err != nil {
		return nil, err
	}
	defer sandbox.Close()
	pod := r.HostAccessPod(k.Host, sandbox)
	pod.WithoutFilter = true
	inspection, err := pod.Inspect(node)
	if err == nil && (inspection.NodeOnly || inspection.HasNodeRoutes()) {
		steps, inspection, err = k.repairLocked(r, pod, node)
	}
	if err != nil {
		if len(inspection.Differences) > 0 && !inspection.NodeOnly {
			k.setDrift(r, inspection.Differences)
		}
		return nil, fmt.Errorf("%s: %w", r.Pod.Or(r.Attachment.String()), err)
	}
	k.setDrift(r, inspection.Differences)
	return steps, nil
}

// repairLocked looks again under the sandbox's lock, and makes right what follows from the node. It returns what it did, and what is left
// then. If somebody works on the sandbox, it returns ErrBusy.
func (k *Reconciler) repairLocked(r checkpoint.Record, pod hostaccess.Pod, node hostaccess.Node) (steps []string, remaining hostaccess.Inspection, err error) {
	unlock, err := k.Store.TryLockRecord(r)
	if err != nil {
		return nil, remaining, err
	}
	defer unlock()
	current, err := k.Store.Reload(r)
	if errors.Is(err, checkpoint.ErrNoCheckpoint) || err == nil && current.HostAccess == nil {
		return nil, remaining, nil // Its DEL was faster.
	}
	if err != nil {
		return nil, remaining, err
	}
	// Somebody may have changed the host access since the Reconciler was told of it.
	pod.Access = *current.HostAccess
	inspection, err := pod.Inspect(node)
	if err != nil {
		return nil, remaining, err
	}
	if inspection.NodeOnly {
		err = pod.Repair(inspection, node)
	} else if err = pod.UpdateNodeRoutes(inspection); err != nil {
		return nil, inspection, err
	} else {
		remaining, err = pod.Inspect(node)
	}
	for _, d := range inspection.Differences {
		if !slices.Contains(remaining.Differences, d) {
			steps = append(steps, r.Pod.Or(r.Attachment.String())+": "+d)
		}
	}
	return steps, remaining, err
}

// setDrift notes what somebody has changed, or that nothing is changed any more.
func (k *Reconciler) setDrift(r checkpoint.Record, differences []string) {
	k.mu.Lock()
	before, exists := k.drifts[r.Attachment]
	f := AccessDrift{Attachment: r.Attachment, Pod: r.Pod, Reason: "host access: " + strings.Join(differences, ", ")}
	if len(differences) == 0 {
		delete(k.drifts, r.Attachment)
	} else {
		k.drifts[r.Attachment] = f
	}
	k.mu.Unlock()
	if exists != (len(differences) > 0) || exists && before != f {
		k.OnDrifts()
	}
}
