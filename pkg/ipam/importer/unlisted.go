package importer

import (
	"fmt"
	"net/netip"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// Caches are the CNI caches of the node.
type Caches interface {
	EntriesOf(network string) []cnicache.Entry
}

// Unlisted returns what pods have in the network by the CNI caches, and what has no entry of the plugin. Whatever range the address is of:
// the plugin may have lost the whole range.
func Unlisted(c Caches, network string, listed func(a netip.Addr, containerID string) bool) (entries []Entry) {
	for _, e := range c.EntriesOf(network) {
		for _, a := range attachment.ResultAddresses(e.Result) {
			if !listed(a, e.Attachment.ContainerID) {
				entries = append(entries, Entry{Address: a, ContainerID: e.Attachment.ContainerID, IfName: e.Attachment.IfName, Pod: e.Pod})
			}
		}
	}
	return entries
}

// decideUnlisted reports an address that a pod has and that the plugin does not know, unless the store knows it or the pod is gone.
func (im *importRun) decideUnlisted(e Entry, previous lease.Lease) {
	key := attachment.Key{Network: im.network, ContainerID: e.ContainerID, IfName: e.IfName}
	cached := im.cacheEntry(key)
	if previous.HeldBy(key) || isGone(im.node.Judge(e.Address, im.holder(e, cached), im.instant, previous.Holders...)) {
		return
	}
	advice := "delete the pod"
	if im.Copy {
		advice = "it is older than the pod, so make it anew; if it still has none, delete the pod"
	}
	im.files = append(im.files, EntryOutcome{
		Address: e.Address, Attachment: key, Owner: cached.Pod.Owner(), State: Missing,
		Reason: fmt.Sprintf("the CNI cache has it for this pod, and %s has no %s of it: %s", im.Path, im.Noun, advice),
	})
}
