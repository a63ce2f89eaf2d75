package intake

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
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/owner"
)

// Owners tells whose pods are, by the Kubernetes API.
type Owners interface {
	Ask(ctx context.Context, q owner.Question) (owner.Answer, error)
}

// askingOwners is how long an import asks for owners. An API that does not answer costs owner.Limit for each pod.
const askingOwners = 30 * time.Second

// learn asks for the owner of each pod whose address will be kept, before anything changes. Without an answer the address is kept
// for the pod by its name, and the report says so.
func (im *importer) learn(ctx context.Context, store *lease.Store, o Options) error {
	im.unasked, im.learnt = map[attachment.Key]attachment.Pod{}, map[attachment.Key]owner.Answer{}
	if err := store.TakeIn(ctx, true, im.decide); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askingOwners)
	defer cancel()
	keys := slices.SortedFunc(maps.Keys(im.unasked), func(a, b attachment.Key) int {
		return cmp.Or(cmp.Compare(a.ContainerID, b.ContainerID), cmp.Compare(a.IfName, b.IfName))
	})
	for i, key := range keys {
		answer, err := o.Owners.Ask(ctx, owner.Question{Pod: im.unasked[key], Network: im.network, IfName: key.IfName})
		if err == nil {
			im.learnt[key] = answer
			continue
		}
		im.failed = append(im.failed, fmt.Sprintf("the addresses of the pod %s are kept for it by its name, and not for its owner: run it again: %v", im.unasked[key], err))
		if left := len(keys) - i - 1; left > 0 && (errors.Is(err, owner.ErrNobody) || ctx.Err() != nil) {
			im.failed = append(im.failed, fmt.Sprintf("the same holds for %d more interfaces of pods: nobody was asked about them", left))
			break
		}
	}
	return nil
}

// ownerOf returns what the API knows of the pod, false if nobody was asked or could tell. It notes a pod that nobody was asked about so
// far. j is the judgement of its sandbox: the API does not know a pod that is gone.
func (im *importer) ownerOf(key attachment.Key, pod attachment.Pod, j reclaim.Judgement) (owner.Answer, bool) {
	answer, is := im.learnt[key]
	if !is && im.unasked != nil && pod.Owner() != (attachment.Owner{}) && !isGone(j) {
		im.unasked[key] = pod
	}
	return answer, is
}

// keepFor makes the holder one whose addresses are kept for the owner, as an ADD with "sticky": "owner" does.
func (im *importer) keepFor(h *lease.Holder, a owner.Answer) {
	h.Owner = a.Owner
	h.Policy.ByOwner, h.Policy.Shared, h.Policy.Sticky, h.Policy.Retain = true, !a.Alone, a.Lasts, 0
	if a.Lasts {
		h.Policy.Retain = im.policy.Retain
	}
}
