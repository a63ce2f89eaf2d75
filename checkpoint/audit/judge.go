package audit

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Judge says what is wrong on the node, and what is not.
func Judge(w Snapshot) NodeReport {
	j := judge{Snapshot: w, living: map[attachment.Key]*liveAttachment{}, containers: map[string][]*liveAttachment{}}
	j.report = NodeReport{Findings: []Finding{}, Problems: w.Problems, Notes: w.Notes, OwnersUnasked: w.Owners.Unasked, LeaseDirs: w.LeaseDirs, NewClusters: w.Owners.NewClusters}
	j.pods = j.knownPods()
	j.judgeCheckpoints()
	j.judgeLeases()
	j.judgeAttachments()
	j.judgeDuplicates()
	j.judgeReservations()
	j.report.sortAndCount()
	return j.report
}

// judge is an audit under way.
type judge struct {
	Snapshot
	report NodeReport
	// living are the attachments of living sandboxes, by their keys without the networks. containers are the same, by container
	// ID.
	living     map[attachment.Key]*liveAttachment
	containers map[string][]*liveAttachment
	// pods are those of containers.
	pods map[string]attachment.Pod
}

// liveAttachment is an attachment of a living sandbox.
type liveAttachment struct {
	key     attachment.Key
	verdict sandboxVerdict
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
	for id, entry := range j.Sandboxes.Runtime {
		pods[id] = entry.Pod
	}
	for i := range j.Attached {
		if r := &j.Attached[i].Record; r.Pod != (attachment.Pod{}) {
			pods[r.Attachment.ContainerID] = r.Pod
		}
	}
	return pods
}

// holderPod returns the pod of a holder, as far as it is known.
func (j *judge) holderPod(l *lease.Lease, h lease.Holder) attachment.Pod {
	pod, ok := j.pods[h.ContainerID]
	switch {
	case h.Pod.Name != "":
		return h.Pod
	case !ok && l.Owner.Kind == attachment.OwnerPod && l.Owner.Group == "": // The owner is the pod itself.
		return attachment.Pod{Namespace: l.Owner.Namespace, Name: l.Owner.Name}
	}
	return pod
}

// finding is a finding about a lease of the network, and about one of those who have or had the address.
func (n *Network) finding(kind Kind, l *lease.Lease, key attachment.Key, pod attachment.Pod) Finding {
	return Finding{
		Kind: kind, Severity: Information, Attachment: key, Pod: pod, Network: n.Name, LeaseDir: n.Dir, Address: l.Address, Owner: l.Owner, Evidence: []string{},
	}
}

func (j *judge) add(f Finding) { j.report.Findings = append(j.report.Findings, f) }

// addAbsent adds a finding about what a sandbox has that is not alive.
func (j *judge) addAbsent(f Finding, verdict sandboxVerdict, namespace attachment.Namespace, since time.Time) {
	f.Severity, f.Evidence, f.Proven = Information, verdict.Evidence, verdict.Verdict == sandbox.VerdictGone
	f.Fields = verdict.fields(namespace)
	f.Fields.Since = since
	if verdict.namespace != sandbox.VerdictGone {
		f.Kind = Unknown
	}
	j.add(f)
}

func (j *judge) addLive(key attachment.Key, f sandboxVerdict) *liveAttachment {
	p := key.WithoutNetwork()
	if j.living[p] == nil {
		j.living[p] = &liveAttachment{key: key, verdict: f}
		j.containers[key.ContainerID] = append(j.containers[key.ContainerID], j.living[p])
	}
	return j.living[p]
}

// judgeCheckpoints judges the sandboxes of the checkpoints.
func (j *judge) judgeCheckpoints() {
	for i := range j.Attached {
		a := &j.Attached[i]
		r := &a.Record
		verdict := j.Sandboxes.verdictOf(r.Attachment.ContainerID, r.Namespace)
		if verdict.Verdict == sandbox.VerdictAlive {
			j.addLive(r.Attachment, verdict).attached = a
			continue
		}
		j.addAbsent(Finding{
			Kind: CheckpointWithoutSandbox, Attachment: r.Attachment, Pod: r.Pod, Network: r.Attachment.Network, Owner: a.Owner, Subject: Subject{Checkpoint: r},
		}, verdict, r.Namespace, r.CapturedAt)
	}
	for i := range j.Unreadable {
		j.judgeUnreadable(&j.Unreadable[i])
	}
}

// judgeUnreadable judges a checkpoint that cannot be read. What is left of it can tell the namespace.
func (j *judge) judgeUnreadable(u *Unreadable) {
	namespace := u.Partial.Namespace
	network := u.Partial.Attachment.Network
	f := Finding{
		Kind: Unknown, Severity: Error, Attachment: attachment.Key{Network: network, ContainerID: u.ContainerID, IfName: u.IfName}, Pod: u.Pod, Network: network,
		Evidence: []string{"its checkpoint cannot be read: " + u.Err.Error()}, Subject: Subject{Unreadable: &u.Unreadable},
	}
	if namespace.Inode != 0 {
		verdict := j.Sandboxes.verdictOf(u.ContainerID, namespace)
		f.Fields = verdict.fields(namespace)
		f.Evidence = append(f.Evidence, verdict.Evidence...)
		if verdict.Verdict == sandbox.VerdictGone {
			f.Kind, f.Severity, f.Proven = CheckpointWithoutSandbox, Information, u.IfName != ""
		}
	}
	j.add(f)
}

// judgeLeases judges the holders.
func (j *judge) judgeLeases() {
	for _, n := range j.Networks {
		if n.Problem != "" {
			j.add(Finding{Kind: Unknown, Severity: Error, Network: n.Name, LeaseDir: n.Dir, Evidence: []string{"the leases of the network cannot be read: " + n.Problem}})
		}
		j.report.Leases += len(n.Leases)
	}
	for n, l := range j.leases() {
		if l.State == lease.Held {
			j.judgeHolders(n, l)
		}
	}
}

func (j *judge) judgeHolders(n *Network, l *lease.Lease) {
	for i := range l.Holders {
		h := &l.Holders[i]
		verdict := j.Sandboxes.holderVerdict(h)
		young := !isOld(h.Since, j.timeOf(n, *h))
		if verdict.Verdict == sandbox.VerdictAlive {
			live := j.addLive(h.Key(n.Name), verdict)
			live.held = append(live.held, holding{l, *h, young})
			continue
		}
		f := n.finding(LeaseWithoutSandbox, l, h.Key(n.Name), j.holderPod(l, *h))
		f.Subject = Subject{Lease: *l, Holder: h}
		j.addAbsent(f, verdict, h.Namespace, h.Since)
	}
}

// judgeAttachments judges the attachments of living sandboxes. Each has one finding.
func (j *judge) judgeAttachments() {
	for _, live := range j.living {
		if live.attached == nil && slices.ContainsFunc(j.Unreadable, func(u Unreadable) bool { return u.Attachment().SameInterface(live.key) }) {
			continue // It has its finding.
		}
		f := Finding{
			Kind: Fine, Severity: Information, Attachment: live.key, Pod: j.pods[live.key.ContainerID], Network: live.key.Network, Evidence: []string{},
			Fields: live.verdict.fields(attachment.Namespace{}),
		}
		if a := live.attached; a != nil {
			f.Fields.Namespace, f.Fields.Since, f.Owner = a.Record.Namespace, a.Record.CapturedAt, a.Owner
			f.Subject.Checkpoint = &a.Record
		}
		if len(live.held) > 0 {
			h := live.held[0]
			f.Pod, f.Address, f.Owner = j.holderPod(h.lease, h.holder), h.lease.Address, cmp.Or(h.lease.Owner, f.Owner)
			f.Fields.Namespace, f.Fields.Since = cmp.Or(f.Fields.Namespace, h.holder.Namespace), h.holder.Since
		}
		j.judgeInterface(live, &f)
		if f.Kind == Fine {
			j.judgeAttachmentLease(live, &f)
		}
		if f.Kind == Fine {
			j.judgeRuntime(live, &f)
		}
		j.add(f)
	}
}

// judgeInterface compares the interface with its checkpoint.
func (j *judge) judgeInterface(live *liveAttachment, f *Finding) {
	a := live.attached
	if a == nil || a.Interface == Fine {
		return
	}
	f.Kind, f.Severity, f.Evidence = a.Interface, Error, []string{a.Reason}
	if a.Interface == Unknown {
		f.Severity, f.Evidence = Information, []string{"its interface could not be looked at: " + a.Reason}
	}
}

// judgeAttachmentLease looks for a lease of each address that relink-ipam gave the interface, and that the interface has.
func (j *judge) judgeAttachmentLease(live *liveAttachment, f *Finding) {
	a := live.attached
	if a == nil || len(a.Assigned) == 0 {
		return
	}
	assigned := j.interfaceAddresses(a)
	for _, address := range a.Assigned {
		if !slices.Contains(assigned, address) || slices.ContainsFunc(live.held, func(h holding) bool { return h.lease.Address == address }) {
			continue
		}
		f.Address = address
		if reason := j.unreadableLeases(a); reason != "" {
			f.Kind, f.Evidence = Unknown, []string{fmt.Sprintf("whether it holds %s is not known: %s", address, reason)}
			return
		}
		f.Kind, f.Severity = SandboxWithoutLease, Error
		f.Evidence = []string{
			fmt.Sprintf("relink-ipam gave it %s, and %s has that address", address, a.Record.Interface.Link.Name),
			"no lease has it as a holder: another pod can be given the address. Make the pod anew",
		}
		return
	}
}

// interfaceAddresses returns which addresses the interface has.
func (j *judge) interfaceAddresses(a *Attached) (addresses []netip.Addr) {
	for _, addr := range j.Sandboxes.Live[a.Record.Namespace.File()].Addresses {
		if addr.Index == a.Index {
			addresses = append(addresses, addr.Address)
		}
	}
	return addresses
}

// unreadableLeases says why a lease of the attachment can be where nobody has looked. Any configuration can name any
// store.
func (j *judge) unreadableLeases(a *Attached) string {
	if a.LeaseDir != "" {
		return "its configuration keeps the leases in " + a.LeaseDir + ", which was not read"
	}
	return j.leaseProblems()
}

// leaseProblems says which leases cannot be read, and why.
func (j *judge) leaseProblems() string {
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
func (j *judge) judgeRuntime(live *liveAttachment, f *Finding) {
	young := live.attached == nil && slices.ContainsFunc(live.held, func(h holding) bool { return h.young })
	switch {
	case live.verdict.runtime == Runs, live.verdict.runtime == Stopped:
	case young:
		f.Kind, f.Evidence = Unknown, []string{
			fmt.Sprintf("under way: it was given %s less than %s ago and has no checkpoint; its ADD may not be over", f.Address, reclaim.LongestADD),
		}
	case live.verdict.runtime == Absent && !live.unnamed():
		f.Kind, f.Evidence = Unknown, []string{
			"its network namespace is there, at " + live.verdict.path + ", and the container runtime does not have the sandbox: it is another runtime's, or was left behind",
		}
	}
}

// unnamed says that relink has made the container ID itself, because nothing told it.
func (l *liveAttachment) unnamed() bool {
	return l.attached != nil && l.key.ContainerID == checkpoint.UnnamedID(l.attached.Record.Namespace)
}
