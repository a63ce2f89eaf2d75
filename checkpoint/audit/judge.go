package audit

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Judge says what is wrong in the world, and what is not.
func Judge(w World) Report {
	j := judge{World: w, living: map[part]*living{}, containers: map[string][]*living{}}
	j.report = Report{Findings: []Finding{}, Problems: w.Problems, Notes: w.Notes, OwnersLeft: w.Owners.Left, LeaseDirs: w.LeaseDirs, NewClusters: w.Owners.NewClusters}
	j.pods = j.knownPods()
	j.checkpoints()
	j.leases()
	j.attachments()
	j.duplicates()
	j.reservations()
	j.report.finish()
	return j.report
}

// judge is an audit under way.
type judge struct {
	World
	report Report
	// living are the attachments of living sandboxes, by container ID and interface. containers are the same, by container
	// ID.
	living     map[part]*living
	containers map[string][]*living
	// pods are those of containers.
	pods map[string]attachment.Pod
}

// part is an attachment as a runtime knows it: the pair is unique on a node.
type part struct{ containerID, ifName string }

// living is an attachment of a living sandbox.
type living struct {
	key  attachment.Key
	fate fate
	// attached is nil if it has no checkpoint.
	attached *Attached
	held     []holding
}

// holding is an address that the attachment holds.
type holding struct {
	lease  *lease.Lease
	holder lease.Holder
	// young says that its ADD may not be over.
	young bool
}

// knownPods returns the pods of the containers: from checkpoints, or else from the runtime.
func (j *judge) knownPods() map[string]attachment.Pod {
	pods := map[string]attachment.Pod{}
	for id, told := range j.Sandboxes.Runtime {
		pods[id] = told.Pod
	}
	for i := range j.Attached {
		if r := &j.Attached[i].Record; r.Pod != (attachment.Pod{}) {
			pods[r.Attachment.ContainerID] = r.Pod
		}
	}
	return pods
}

// podOf returns the pod of a holder, as far as it is known.
func (j *judge) podOf(l *lease.Lease, h lease.Holder) attachment.Pod {
	pod, known := j.pods[h.ContainerID]
	switch {
	case h.Pod.Name != "":
		return h.Pod
	case !known && l.Owner.Kind == attachment.OwnerPod && l.Owner.Group == "": // An older relink noted no pod.
		return attachment.Pod{Namespace: l.Owner.Namespace, Name: l.Owner.Name}
	}
	return pod
}

func (j *judge) add(f Finding) { j.report.Findings = append(j.report.Findings, f) }

func (j *judge) alive(key attachment.Key, f fate) *living {
	p := part{key.ContainerID, key.IfName}
	if j.living[p] == nil {
		j.living[p] = &living{key: key, fate: f}
		j.containers[key.ContainerID] = append(j.containers[key.ContainerID], j.living[p])
	}
	return j.living[p]
}

// checkpoints judges the sandboxes of the checkpoints.
func (j *judge) checkpoints() {
	for i := range j.Attached {
		a := &j.Attached[i]
		r := &a.Record
		is := j.Sandboxes.fateOf(r.Attachment.ContainerID, r.Namespace)
		if is.is == reclaim.Alive {
			j.alive(r.Attachment, is).attached = a
			continue
		}
		f := Finding{
			Kind: CheckpointWithoutSandbox, Severity: Information, Attachment: r.Attachment, Pod: r.Pod, Network: r.Attachment.Network, Owner: a.Owner,
			Evidence: is.evidence, Fields: is.fields(r.Namespace), Proven: is.is == reclaim.Gone, Subject: Subject{Checkpoint: r},
		}
		f.Fields.Since = r.CapturedAt
		if is.namespace != sandbox.IsGone {
			f.Kind = Unknown
		}
		j.add(f)
	}
	for i := range j.Unreadable {
		j.unreadable(&j.Unreadable[i])
	}
}

// unreadable judges a checkpoint that cannot be read. What is left of it can tell the namespace.
func (j *judge) unreadable(u *Unreadable) {
	was := u.Left.Namespace
	network := u.Left.Attachment.Network
	f := Finding{
		Kind: Unknown, Severity: Error, Attachment: attachment.Key{Network: network, ContainerID: u.ContainerID, IfName: u.IfName}, Pod: u.Pod, Network: network,
		Evidence: []string{"its checkpoint cannot be read: " + u.Err.Error()}, Subject: Subject{Unreadable: &u.Unreadable},
	}
	if was.Inode != 0 {
		is := j.Sandboxes.fateOf(u.ContainerID, was)
		f.Fields = is.fields(was)
		f.Evidence = append(f.Evidence, is.evidence...)
		if is.is == reclaim.Gone {
			f.Kind, f.Severity, f.Proven = CheckpointWithoutSandbox, Information, u.IfName != ""
		}
	}
	j.add(f)
}

// leases judges the holders.
func (j *judge) leases() {
	for i := range j.Networks {
		n := &j.Networks[i]
		if n.Problem != "" {
			j.add(Finding{Kind: Unknown, Severity: Error, Network: n.Name, LeaseDir: n.Dir, Evidence: []string{"the leases of the network cannot be read: " + n.Problem}})
		}
		j.report.Leases += len(n.Leases)
		for k := range n.Leases {
			if l := &n.Leases[k]; l.State == lease.Held {
				j.holders(n, l)
			}
		}
	}
}

func (j *judge) holders(n *Network, l *lease.Lease) {
	for i := range l.Holders {
		h := &l.Holders[i]
		is := j.Sandboxes.fateOfHolder(n, *l, *h)
		now := n.Now
		if h.Origin == lease.Imported { // An import knows only the time of day.
			now = j.Now
		}
		young := h.Since.After(now.Add(-reclaim.LongestADD))
		if is.is == reclaim.Alive {
			one := j.alive(h.Key(n.Name), is)
			one.held = append(one.held, holding{l, *h, young})
			continue
		}
		f := Finding{
			Kind: LeaseWithoutSandbox, Severity: Information, Attachment: h.Key(n.Name), Pod: j.podOf(l, *h), Network: n.Name, LeaseDir: n.Dir, Address: l.Address, Owner: l.Owner,
			Evidence: is.evidence, Fields: is.fields(h.Namespace), Proven: is.is == reclaim.Gone, Subject: Subject{Lease: *l, Holder: h},
		}
		f.Fields.Since = h.Since
		if is.namespace != sandbox.IsGone {
			f.Kind = Unknown
		}
		j.add(f)
	}
}

// attachments judges the attachments of living sandboxes. Each has one finding.
func (j *judge) attachments() {
	for _, one := range j.living {
		f := Finding{
			Kind: Fine, Severity: Information, Attachment: one.key, Pod: j.pods[one.key.ContainerID], Network: one.key.Network, Evidence: []string{},
			Fields: one.fate.fields(attachment.Namespace{}),
		}
		if a := one.attached; a != nil {
			f.Fields.Namespace, f.Fields.Since, f.Owner = a.Record.Namespace, a.Record.CapturedAt, a.Owner
		}
		if len(one.held) > 0 {
			h := one.held[0]
			f.Pod, f.Address, f.Owner = j.podOf(h.lease, h.holder), h.lease.Address, cmp.Or(h.lease.Owner, f.Owner)
			f.Fields.Namespace, f.Fields.Since = cmp.Or(f.Fields.Namespace, h.holder.Namespace), h.holder.Since
		}
		j.judgeInterface(one, &f)
		if f.Kind == Fine {
			j.judgeLease(one, &f)
		}
		if f.Kind == Fine {
			j.judgeRuntime(one, &f)
		}
		j.add(f)
	}
}

// judgeInterface compares the interface with its checkpoint.
func (j *judge) judgeInterface(one *living, f *Finding) {
	if one.attached == nil {
		return
	}
	switch a := one.attached; a.Interface {
	case Lost:
		f.Kind, f.Severity, f.Evidence = LostInterface, Error, []string{a.Why}
	case Wrong:
		f.Kind, f.Severity, f.Evidence = WrongInterface, Error, []string{a.Why}
	case NotSeen:
		f.Kind, f.Evidence = Unknown, []string{"its interface could not be looked at: " + a.Why}
	}
}

// judgeLease looks for a lease of each address that relink-ipam gave the interface, and that the interface has.
func (j *judge) judgeLease(one *living, f *Finding) {
	a := one.attached
	if a == nil || len(a.Given) == 0 {
		return
	}
	has := j.addressesOf(a)
	for _, given := range a.Given {
		if !slices.Contains(has, given) || slices.ContainsFunc(one.held, func(h holding) bool { return h.lease.Address == given }) {
			continue
		}
		f.Address = given
		if why := j.unreadableLeases(a); why != "" {
			f.Kind, f.Evidence = Unknown, []string{fmt.Sprintf("whether it holds %s is not known: %s", given, why)}
			return
		}
		f.Kind, f.Severity = SandboxWithoutLease, Error
		f.Evidence = []string{
			fmt.Sprintf("relink-ipam gave it %s, and %s has that address", given, a.Record.Interface.Link.Name),
			"no lease has it as a holder: another pod can be given the address. Make the pod anew",
		}
		return
	}
}

// addressesOf returns which addresses the interface has.
func (j *judge) addressesOf(a *Attached) (all []netip.Addr) {
	for _, at := range j.Sandboxes.Live[PlaceOf(a.Record.Namespace)].Addresses {
		if at.Index == a.Index {
			all = append(all, at.Address)
		}
	}
	return all
}

// unreadableLeases says why a lease of the attachment can be where nobody has looked. A renamed network can have it under
// any name.
func (j *judge) unreadableLeases(a *Attached) string {
	if a.LeaseDir != "" {
		return "its configuration keeps the leases in " + a.LeaseDir + ", which was not read"
	}
	var problems []string
	for _, n := range j.Networks {
		if n.Problem != "" {
			problems = append(problems, n.Problem)
		}
	}
	return strings.Join(problems, "; ")
}

// judgeRuntime is for a sandbox that is there and that the runtime does not know. A runtime that is at work on an ADD may
// not tell of the sandbox yet.
func (j *judge) judgeRuntime(one *living, f *Finding) {
	young := one.attached == nil && slices.ContainsFunc(one.held, func(h holding) bool { return h.young })
	switch {
	case one.fate.runtime == Runs, one.fate.runtime == Stopped:
	case young:
		f.Kind, f.Evidence = Unknown, []string{
			fmt.Sprintf("under way: it was given %s less than %s ago and has no checkpoint; its ADD may not be over", f.Address, reclaim.LongestADD),
		}
	case one.fate.runtime == Absent && !one.unnamed():
		f.Kind, f.Evidence = Unknown, []string{one.fate.unknownToRuntime()}
	}
}

// unnamed says that relink has made the container ID itself, because nothing told it.
func (l *living) unnamed() bool {
	return l.attached != nil && l.key.ContainerID == checkpoint.UnnamedID(l.attached.Record.Namespace)
}
