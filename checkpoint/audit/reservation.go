package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/owner"
)

// judgeReservations judges what waits for an owner.
func (j *judge) judgeReservations() {
	present := j.liveByOwner()
	for n, l := range j.leases() {
		if l.State != lease.Reserved {
			continue
		}
		j.report.Reservations++
		if l.ReservedByHandAt(n.StoreTime) {
			j.report.KeptByHand++
			continue
		}
		if l.Owner == (attachment.Owner{}) {
			continue // It ends by itself, and there is nobody to ask for.
		}
		if f, ok := j.judgeReservation(n, l, present[l.Owner]); ok {
			j.add(f)
		}
	}
}

// judgeReservation judges one reservation. ok is false if there is nothing to say.
func (j *judge) judgeReservation(n *Network, l *lease.Lease, present []*liveAttachment) (f Finding, ok bool) {
	judged, asked := j.Owners.Judged[l.Owner]
	if !asked {
		return f, false
	}
	f = n.finding(ReservationWithoutOwner, l, l.Last.Key(n.Name), j.holderPod(l, l.Last))
	f.Fields, f.Subject = Fields{Standing: judged.Standing, ReleasedAt: l.ReleasedAt}, Subject{Lease: *l, Reservation: true}
	switch judged.Standing {
	case owner.Gone:
		f.Evidence, f.Proven = []string{"its owner is gone: " + judged.Reason}, true
		return f, true
	case owner.Exists:
	default:
		f.Kind, f.Evidence = Unknown, []string{"whether its owner is gone is not known: " + judged.Reason}
		return f, true
	}
	if reason := j.elsewhereReason(n, l, judged, present); reason != "" {
		f.Proven, f.Fields.ElsewherePodUID = true, judged.RemotePodUID
		f.Evidence = []string{"its owner lives: " + judged.Reason, reason}
		return f, true
	}
	sandboxID, reason := j.unusedReason(n, l, present)
	if reason == "" {
		return f, false
	}
	f.Proven, f.Fields.PresentSandbox = true, sandboxID
	f.Evidence = []string{"its owner lives: " + judged.Reason, reason + ": the owner does not use the address any more"}
	return f, true
}

// liveByOwner returns the attachments of living sandboxes by their owners.
func (j *judge) liveByOwner() map[attachment.Owner][]*liveAttachment {
	byOwner := map[attachment.Owner][]*liveAttachment{}
	for _, live := range j.living {
		for o := range live.owners() {
			byOwner[o] = append(byOwner[o], live)
		}
	}
	return byOwner
}

// owners are all that the attachment may be on behalf of: its pod by its name, its owner by the API, and those of its
// leases.
func (l *liveAttachment) owners() map[attachment.Owner]bool {
	set := map[attachment.Owner]bool{}
	if l.attached != nil {
		set[l.attached.Owner], set[l.attached.Record.Pod.Owner()] = true, true
	}
	for _, h := range l.held {
		set[h.lease.Owner], set[h.holder.Owner], set[h.holder.Pod.Owner()] = true, true, true
	}
	delete(set, attachment.Owner{})
	return set
}

// elsewhereReason says why the address waits in vain for the one pod of an ordinal: the pod is on another node, and has an address of that
// node's ranges. Nothing of the owner is on this node.
func (j *judge) elsewhereReason(n *Network, l *lease.Lease, judged owner.Judgement, present []*liveAttachment) string {
	if judged.RemotePodUID == "" || judged.RemotePodUID == l.Last.Pod.UID || n.Pools || !l.WaitsForPod() || len(present) > 0 || j.leasesMissing() || j.Sandboxes.NotAsked != "" {
		return ""
	}
	number, _ := l.Owner.Ordinal.Number()
	name := fmt.Sprintf("%s-%d", l.Owner.Name, number)
	for _, entry := range j.Sandboxes.Runtime {
		if entry.Pod.Namespace == l.Owner.Namespace && entry.Pod.Name == name {
			return ""
		}
	}
	return judged.PodLocation
}

// unusedReason says why a living owner does not use its reservation any more, and by which sandbox that is known. The owner has
// one pod at a time, and that pod is on this node: the runtime keeps its sandbox running. The pod is attached for longer than
// an ADD takes, or relink has attached it to nothing for as long. It has nothing in the network.
func (j *judge) unusedReason(n *Network, l *lease.Lease, present []*liveAttachment) (sandboxID, reason string) {
	if !onePodAtATime(l.Owner) || j.leasesMissing() {
		return "", ""
	}
	if len(present) == 0 {
		return j.unattachedReason(l)
	}
	if live, ok := j.attachedElsewhere(n, l.Last.IfName, present); ok {
		lacks := "nothing"
		if live.attached.isOf(n.Name, live.key) {
			lacks = "no " + l.Last.IfName
		}
		return live.key.ContainerID, fmt.Sprintf("the owner's pod runs in sandbox %s, which has %s on %s and %s in network %s",
			live.key.ContainerID, live.key.IfName, live.key.Network, lacks, n.Name)
	}
	return "", ""
}

// unattachedReason is unusedReason for an owner whose pod relink has attached to nothing.
func (j *judge) unattachedReason(l *lease.Lease) (sandboxID, reason string) {
	sandboxes := j.Owners.Unattached[l.Owner]
	if len(sandboxes) != 1 || !isOld(sandboxes[0].Created, j.Time) || j.cannotRead(sandboxes[0].ContainerID) {
		return "", ""
	}
	return sandboxes[0].ContainerID, fmt.Sprintf("the owner's pod runs in sandbox %s, which relink has attached to nothing", sandboxes[0].ContainerID)
}

// cannotRead says that a checkpoint of the sandbox cannot be read: that attachment can be in any network.
func (j *judge) cannotRead(containerID string) bool {
	return slices.ContainsFunc(j.Unreadable, func(u Unreadable) bool { return u.ContainerID == containerID })
}

// attachedElsewhere says that the owner's pod does not have the interface on the network, and returns one of its attachments.
// Without a name, any interface counts.
func (j *judge) attachedElsewhere(n *Network, ifName string, present []*liveAttachment) (first *liveAttachment, ok bool) {
	for _, live := range present {
		if first == nil || live.key.IfName < first.key.IfName {
			first = live
		}
		if live.key.ContainerID != present[0].key.ContainerID || live.verdict.runtime != Runs || live.attached == nil || !isOld(live.attached.Record.CapturedAt, j.Time) {
			return nil, false
		}
	}
	for _, sibling := range j.containers[first.key.ContainerID] {
		if ifName != "" && sibling.key.IfName != ifName {
			continue
		}
		unknown := len(sibling.held) == 0 && sibling.attached.LeaseStore == ""
		if unknown || sibling.attached.isOf(n.Name, sibling.key) {
			return nil, false
		}
		for _, h := range sibling.held {
			if h.lease.Network == n.Name {
				return nil, false
			}
		}
	}
	return first, !j.cannotRead(first.key.ContainerID)
}

// leasesMissing says that some leases cannot be read: the owner's pod may hold one of these.
func (j *judge) leasesMissing() bool { return j.leaseProblems() != "" }

// isOld says that it began longer ago than any ADD takes.
func isOld(began, instant time.Time) bool { return began.Before(instant.Add(-reclaim.LongestADD)) }

// onePodAtATime says that no other pod of the owner can be about to start elsewhere. A virtual machine is not one of
// these: an interface that was unplugged can be plugged in again. Kinds that relink does not know may have many pods.
func onePodAtATime(o attachment.Owner) bool {
	_, numbered := o.Ordinal.Number()
	return numbered || o.Kind == attachment.OwnerPod && o.Group == ""
}
