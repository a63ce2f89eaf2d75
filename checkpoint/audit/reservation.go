package audit

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/owner"
)

// reservations judges what waits for an owner.
func (j *judge) reservations() {
	present := j.present()
	for i := range j.Networks {
		n := &j.Networks[i]
		for k := range n.Leases {
			l := &n.Leases[k]
			if l.State != lease.Reserved {
				continue
			}
			j.report.Reservations++
			if l.KeptByHand(n.Now) {
				j.report.KeptByHand++
				continue
			}
			if l.Owner == (attachment.Owner{}) {
				continue // It ends by itself, and there is nobody to ask for.
			}
			if f, ok := j.reservation(n, l, present[l.Owner]); ok {
				j.add(f)
			}
		}
	}
}

// reservation judges one reservation. ok is false if there is nothing to say.
func (j *judge) reservation(n *Network, l *lease.Lease, present []*living) (f Finding, ok bool) {
	judged, asked := j.Owners.Judged[l.Owner]
	if !asked {
		return f, false
	}
	f = Finding{
		Kind: ReservationWithoutOwner, Severity: Information, Attachment: l.Last.Key(n.Name), Network: n.Name, LeaseDir: n.Dir, Address: l.Address, Owner: l.Owner,
		Pod: j.podOf(l, l.Last), Fields: Fields{Standing: judged.Standing, ReleasedAt: l.ReleasedAt}, Subject: Subject{Lease: *l, Reservation: true},
	}
	switch judged.Standing {
	case owner.Gone:
		f.Evidence, f.Proven = []string{"its owner is gone: " + judged.Why}, true
		return f, true
	case owner.Lives:
	default:
		f.Kind, f.Evidence = Unknown, []string{"whether its owner is gone is not known: " + judged.Why}
		return f, true
	}
	if why := j.elsewhere(n, l, judged, present); why != "" {
		f.Proven, f.Fields.Elsewhere = true, judged.Elsewhere
		f.Evidence = []string{"its owner lives: " + judged.Why, why}
		return f, true
	}
	sandboxID, why := j.unused(n, l, present)
	if why == "" {
		return f, false
	}
	f.Proven, f.Fields.Present = true, sandboxID
	f.Evidence = []string{"its owner lives: " + judged.Why, why + ": the owner does not use the address any more"}
	return f, true
}

// present returns the attachments of living sandboxes by their owners.
func (j *judge) present() map[attachment.Owner][]*living {
	all := map[attachment.Owner][]*living{}
	for _, one := range j.living {
		for o := range one.owners() {
			all[o] = append(all[o], one)
		}
	}
	return all
}

// owners are all that the attachment may be on behalf of: its pod by its name, its owner by the API, and those of its
// leases.
func (l *living) owners() map[attachment.Owner]bool {
	all := map[attachment.Owner]bool{}
	if l.attached != nil {
		all[l.attached.Owner], all[l.attached.Record.Pod.Owner()] = true, true
	}
	for _, h := range l.held {
		all[h.lease.Owner], all[h.holder.Owner], all[h.holder.Pod.Owner()] = true, true, true
	}
	delete(all, attachment.Owner{})
	return all
}

// elsewhere says why the address waits in vain for the one pod of an ordinal: the pod is on another node, and has an address of that
// node's ranges. Nothing of the owner is on this node.
func (j *judge) elsewhere(n *Network, l *lease.Lease, judged owner.Judgement, present []*living) string {
	if judged.Elsewhere == "" || judged.Elsewhere == l.Last.Pod.UID || n.Pools || !l.WaitsForPod() || len(present) > 0 || j.leasesMissing() || j.Sandboxes.NotAsked != "" {
		return ""
	}
	number, _ := l.Owner.Ordinal.Number()
	name := fmt.Sprintf("%s-%d", l.Owner.Name, number)
	for _, told := range j.Sandboxes.Runtime {
		if told.Pod.Namespace == l.Owner.Namespace && told.Pod.Name == name {
			return ""
		}
	}
	return judged.Where
}

// unused says why a living owner does not use its reservation any more, and by which sandbox that is known. The owner has
// one pod at a time, and that pod is on this node: the runtime keeps its sandbox running. The pod is attached for longer than
// an ADD takes, or relink has attached it to nothing for as long. It has nothing in the network.
func (j *judge) unused(n *Network, l *lease.Lease, present []*living) (sandboxID, why string) {
	if !onePodAtATime(l.Owner) || j.leasesMissing() {
		return "", ""
	}
	if len(present) == 0 {
		return j.unattached(l)
	}
	if by, ok := j.attachedElsewhere(n, l.Last.IfName, present); ok {
		lacks := "nothing"
		if by.key.Network == n.Name {
			lacks = "no " + l.Last.IfName
		}
		return by.key.ContainerID, fmt.Sprintf("the owner's pod runs in sandbox %s, which has %s on %s and %s in network %s",
			by.key.ContainerID, by.key.IfName, by.key.Network, lacks, n.Name)
	}
	return "", ""
}

// unattached is unused for an owner whose pod relink has attached to nothing.
func (j *judge) unattached(l *lease.Lease) (sandboxID, why string) {
	all := j.Owners.Unattached[l.Owner]
	if len(all) != 1 || !all[0].Created.Before(j.Now.Add(-reclaim.LongestADD)) || j.cannotRead(all[0].ContainerID) {
		return "", ""
	}
	return all[0].ContainerID, fmt.Sprintf("the owner's pod runs in sandbox %s, which relink has attached to nothing", all[0].ContainerID)
}

// cannotRead says that a checkpoint of the sandbox cannot be read: that attachment can be in any network.
func (j *judge) cannotRead(containerID string) bool {
	return slices.ContainsFunc(j.Unreadable, func(u Unreadable) bool { return u.ContainerID == containerID })
}

// attachedElsewhere says that the owner's pod does not have the interface on the network, and returns one of its attachments.
// Without a name, any interface counts.
func (j *judge) attachedElsewhere(n *Network, ifName string, present []*living) (by *living, ok bool) {
	for _, one := range present {
		if by == nil || one.key.IfName < by.key.IfName {
			by = one
		}
		if one.key.ContainerID != present[0].key.ContainerID || one.fate.runtime != Runs || one.attached == nil || !j.isOld(one) {
			return nil, false
		}
	}
	for _, other := range j.containers[by.key.ContainerID] {
		if ifName != "" && other.key.IfName != ifName {
			continue
		}
		if other.key.Network == n.Name || other.attached != nil && other.attached.Record.Attachment.Network == n.Name {
			return nil, false
		}
		for _, h := range other.held {
			if h.lease.Network == n.Name {
				return nil, false
			}
		}
	}
	return by, !j.cannotRead(by.key.ContainerID)
}

// leasesMissing says that some leases cannot be read: the owner's pod may hold one of these.
func (j *judge) leasesMissing() bool {
	for _, n := range j.Networks {
		if n.Problem != "" {
			return true
		}
	}
	return false
}

// isOld says that the attachment was recorded longer ago than any ADD takes.
func (j *judge) isOld(one *living) bool {
	return one.attached.Record.CapturedAt.Before(j.Now.Add(-reclaim.LongestADD))
}

// onePodAtATime says that no other pod of the owner can be about to start elsewhere. A virtual machine is not one of
// these: an interface that was unplugged can be plugged in again. Kinds that relink does not know may have many pods.
func onePodAtATime(o attachment.Owner) bool {
	_, numbered := o.Ordinal.Number()
	return numbered || o.Kind == attachment.OwnerPod && o.Group == ""
}
