package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// OwnerAsker tells whose pods are, by the Kubernetes API.
type OwnerAsker interface {
	Ask(ctx context.Context, q owner.Question) (owner.Answer, error)
}

// ownersTimeout is how long an import asks for owners. An API that does not answer costs owner.AskTimeout for each pod.
const ownersTimeout = 30 * time.Second

// askOwners asks for the owner of each pod whose address will be kept, before anything changes. Without an answer the address is kept
// for the pod by its name, and the report says so.
func (im *importRun) askOwners(ctx context.Context, store *lease.Store, o Options) error {
	im.pendingOwners, im.answers = map[attachment.Key]attachment.Pod{}, map[attachment.Key]owner.Answer{}
	if err := store.Import(ctx, true, im.decide); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ownersTimeout)
	defer cancel()
	keys := slices.SortedFunc(maps.Keys(im.pendingOwners), func(a, b attachment.Key) int {
		return cmp.Or(cmp.Compare(a.ContainerID, b.ContainerID), cmp.Compare(a.IfName, b.IfName))
	})
	for i, key := range keys {
		answer, err := o.Owners.Ask(ctx, owner.Question{Pod: im.pendingOwners[key], Network: im.network, IfName: key.IfName})
		if err == nil {
			im.answers[key] = answer
			continue
		}
		im.failed = append(im.failed, fmt.Sprintf("the addresses of the pod %s are kept for it by its name, and not for its owner: run it again: %v", im.pendingOwners[key], err))
		if remaining := len(keys) - i - 1; remaining > 0 && (errors.Is(err, owner.ErrNoAsker) || ctx.Err() != nil) {
			im.failed = append(im.failed, fmt.Sprintf("the same holds for %d more interfaces of pods: nobody was asked about them", remaining))
			break
		}
	}
	return nil
}

// ownerOf returns what the API knows of the pod, false if nobody was asked or could tell. It notes a pod that nobody was asked about so
// far. j is the judgement of its sandbox: the API does not know a pod that is gone.
func (im *importRun) ownerOf(key attachment.Key, pod attachment.Pod, j sandbox.Judgement) (owner.Answer, bool) {
	answer, ok := im.answers[key]
	if !ok && im.pendingOwners != nil && pod.Owner() != (attachment.Owner{}) && !isGone(j) {
		im.pendingOwners[key] = pod
	}
	return answer, ok
}

// keepForOwner makes the holder one whose addresses are kept for the owner, as an ADD with "sticky": "owner" does.
func (im *importRun) keepForOwner(h *lease.Holder, a owner.Answer) {
	h.Owner = a.Owner
	h.Policy.ByOwner, h.Policy.Shared, h.Policy.Sticky, h.Policy.Retain = true, !a.SinglePod, a.Persistent, 0
	if a.Persistent {
		h.Policy.Retain = im.policy.Retain
	}
}
