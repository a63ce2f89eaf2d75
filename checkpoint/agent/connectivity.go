package agent

import (
	"cmp"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Connectivity says which pods are cut off. The first one comes when the agent has looked at all checkpoints, devices and sandboxes.
type Connectivity struct {
	// Pods are those whose state has changed.
	Pods []PodConnectivity
	// Lost are the numbers of all attachments of the node that are cut off, by their bases. No base has 0.
	Lost map[string]int
}

// PodConnectivity says whether a pod is cut off.
type PodConnectivity struct {
	Pod   attachment.Pod
	State PodState
	// Loss is what has become of one of its interfaces, if the pod is cut off.
	Loss InterfaceChange
}

// PodState is what is known of the recorded interfaces of a pod together.
type PodState string

const (
	// PodUnknown says that nothing is proven: no interface of the pod is recorded or found, or a checkpoint cannot be read.
	PodUnknown PodState = ""
	// PodCutOff says that one of the interfaces is lost.
	PodCutOff PodState = "cut off"
	// PodUnannounced says that no interface is lost, but that neighbours may not know where the pod's addresses are, or that an interface differs
	// from its record.
	PodUnannounced PodState = "unannounced"
	// PodConnected says that no interface is lost, and that the neighbours know.
	PodConnected PodState = "connected"
)

// attachmentView is what podState knows about an attachment. found says that its sandbox was found, and looked at since the agent started.
// readable says that all checkpoints of the sandbox are. drifted says that it differs from its record, or that somebody has taken it away.
type attachmentView struct {
	found, readable, owed, drifted bool
	// loss is nil unless the attachment is cut off.
	loss *InterfaceChange
}

// podState is a pure function: it says whether the pod with these attachments is cut off, and why. A sandbox that is not found does not
// count beside one that is. The loss that was reported before stays the reason as long as it lasts.
func podState(reported InterfaceChange, attachments []attachmentView) (state PodState, loss InterfaceChange, reason string) {
	pod := attachmentView{readable: true}
	var losses []InterfaceChange
	for _, v := range attachments {
		if !v.found {
			continue
		}
		pod.found, pod.readable = true, pod.readable && v.readable
		pod.owed, pod.drifted = pod.owed || v.owed, pod.drifted || v.drifted
		if v.loss != nil {
			losses = append(losses, *v.loss)
		}
	}
	switch {
	case slices.ContainsFunc(losses, func(c InterfaceChange) bool { return c.Attachment == reported.Attachment }):
		return PodCutOff, reported, reported.Device + " has gone"
	case len(losses) > 0:
		loss = slices.MinFunc(losses, func(a, b InterfaceChange) int { return strings.Compare(a.Attachment.String(), b.Attachment.String()) })
		return PodCutOff, loss, loss.Device + " has gone"
	case !pod.found:
		return PodUnknown, loss, "no sandbox of the pod is found"
	case !pod.readable:
		return PodUnknown, loss, "a checkpoint cannot be read"
	case pod.drifted:
		return PodUnannounced, loss, "an interface differs from its record"
	case pod.owed:
		return PodUnannounced, loss, "the neighbours are not told yet"
	}
	return PodConnected, loss, "all recorded interfaces are whole"
}

// cutsOff says that nothing passes the devices that are left: of a bond, all NICs are missing, and not only one.
func cutsOff(loss *restore.Loss, parents []netstate.Device, devices netstate.Devices) bool {
	if loss == nil || !loss.Member {
		return loss != nil
	}
	return slices.ContainsFunc(parents, func(p netstate.Device) bool {
		return p.Bond != nil && !slices.ContainsFunc(devices, func(d netstate.LiveDevice) bool { return d.MasterIndex == p.IfIndex })
	})
}

// podMembers are the attachments of a pod, and what the observers know of it.
type podMembers struct {
	members  map[*member]bool
	reported PodConnectivity
}

// assign notes which pod the attachment belongs to. No attachment of another pod has the member. Nobody is told of a pod that nobody knows.
func (a *Agent) assign(m *member, pod attachment.Pod) {
	a.unassign(m)
	if pod == (attachment.Pod{}) {
		return
	}
	if a.pods[pod] == nil {
		a.pods[pod] = &podMembers{members: map[*member]bool{}, reported: PodConnectivity{Pod: pod}}
	}
	a.pods[pod].members[m] = true
	a.changedPods[pod] = true
}

// unassign is for an attachment that has no checkpoint any more, or that of another pod.
func (a *Agent) unassign(m *member) {
	if p := a.pods[m.record.Pod]; p != nil && p.members[m] {
		delete(p.members, m)
		a.changedPods[m.record.Pod] = true
	}
}

// tellConnectivity tells the observers which pods are cut off, and which no longer. It looks only at what has changed.
func (a *Agent) tellConnectivity() {
	if !a.allSeen || len(a.changedPods) == 0 && a.connectivityTold {
		return
	}
	e := Connectivity{Lost: map[string]int{}}
	for _, c := range a.chains {
		for _, s := range c.stacks {
			if !s.cutOff {
				continue
			}
			for m := range s.members {
				if !a.unread[m] && !m.absent {
					e.Lost[cmp.Or(c.base, "in pods")]++
				}
			}
		}
	}
	for pod := range a.changedPods {
		p := a.pods[pod]
		if p == nil {
			continue
		}
		before := p.reported
		p.reported.State, p.reported.Loss, _ = podState(before.Loss, a.viewsOf(p))
		if p.reported != before {
			e.Pods = append(e.Pods, p.reported)
		}
		if len(p.members) == 0 {
			delete(a.pods, pod)
		}
	}
	clear(a.changedPods)
	a.connectivityTold = true
	a.observe(e)
}

// viewsOf returns what podState needs of a pod.
func (a *Agent) viewsOf(p *podMembers) (views []attachmentView) {
	for m := range p.members {
		key := m.record.Attachment
		v := attachmentView{
			found: m.stack != nil && !m.absent && !a.unread[m], readable: a.index.sandboxes[key.ContainerID].unreadable == 0, owed: m.record.AnnouncementOwed,
			drifted: m.finding != nil || m.drift != nil && m.drift.Confirmed,
		}
		// What a restore has to do first is not announced: a NIC is in its bond again, and may have no link yet.
		v.owed = v.owed || v.found && slices.ContainsFunc(m.stack.chain.view.Ready, func(r checkpoint.Record) bool { return r.Attachment.ContainerID == m.stack.key })
		if v.found && m.stack.cutOff {
			v.loss = &InterfaceChange{Attachment: key, Pod: m.record.Pod, State: Lost, Base: m.stack.chain.base, Device: m.stack.loss.Device}
		}
		views = append(views, v)
	}
	return views
}
