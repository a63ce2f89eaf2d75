package gc

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// DefaultGrace is the time between two sightings.
const DefaultGrace = reclaim.LongestADD

// Moment is when a pass decides.
type Moment struct {
	BootID string
	// Uptime is the time since the boot: nobody can set it.
	Uptime time.Duration
	// Time is the time of day, for people.
	Time time.Time
}

// Decide says what to do about each finding that is about a lease, a reservation or a checkpoint of somebody who may be
// gone: each is ToFree, Waiting or Kept. earlier are the sightings of the pass before. The sightings that it returns replace them: what is
// not seen now begins anew when it is seen again. What earlier passes saw in directories that this one did not read stays.
func Decide(report audit.NodeReport, earlier Sightings, moment Moment, o Options) ([]PassOutcome, Sightings) {
	current := Sightings{BootID: moment.BootID, List: append([]Sighting{}, earlier.inOtherDirs(report.LeaseDirs, moment)...)}
	before := earlier.bySubject(moment)
	var outcomes []PassOutcome
	for _, f := range report.Findings {
		subject, ok := subjectOf(f)
		isAlive := f.Subject.Checkpoint != nil && f.Fields.NamespaceState == sandbox.VerdictAlive
		if !ok || !o.Forget && isAlive || o.Forget && subject.Kind != kindCheckpoint {
			continue
		}
		first, repeated := before[subject]
		if !repeated {
			first = moment.Uptime
		}
		if f.Proven {
			current.List = append(current.List, Sighting{PassSubject: subject, FirstSeen: first})
		}
		out := PassOutcome{Finding: f, State: change.Kept}
		if isAlive { // The finding is about the attachment. The outcome is about its checkpoint alone.
			out.Address, out.Evidence = netip.Addr{}, []string{"its network namespace is there"}
		}
		switch since := moment.Uptime - first; {
		case o.Forget:
			out.decideForget(o.Force)
		case !f.Proven:
		case o.Now && !f.Subject.Reservation:
			out.State, out.Reason = ToFree, "--now does not wait for a second pass"
		case repeated && since >= o.Grace:
			out.State, out.Reason = ToFree, fmt.Sprintf("seen dead twice, %s apart", since.Round(time.Second))
		default:
			out.State, out.Reason = Waiting, fmt.Sprintf("seen dead for %s, and %s are needed", since.Round(time.Second), o.Grace)
			if repeated || !o.DryRun && !o.Now { // What notes nothing does not count as a pass.
				out.Until = moment.Time.Add(o.Grace - since)
			}
		}
		outcomes = append(outcomes, out)
	}
	return outcomes, current
}

// decideForget is for a checkpoint that a person has named.
func (o *PassOutcome) decideForget(force bool) {
	const loses = "relink restore will not bring this interface back"
	switch gone := o.Fields.NamespaceState == sandbox.VerdictGone; {
	case o.Subject.Unreadable != nil && o.Subject.Unreadable.IfName == "": // Its directory cannot be read.
	case gone:
		o.State, o.Reason = ToFree, "no restore needs it"
	case force:
		o.State, o.Reason = ToFree, "if its sandbox is alive, "+loses
	default:
		o.Reason = "--force forgets it all the same: if its sandbox is alive, " + loses + " then"
	}
}

// subjectOf returns what the finding is about. ok is false for a finding about nothing that could ever be freed.
func subjectOf(f audit.Finding) (t PassSubject, ok bool) {
	s := f.Subject
	switch {
	case s.Holder != nil:
		return PassSubject{
			Kind: kindHolder, LeaseDir: f.LeaseDir, Network: s.Lease.Network, Address: s.Lease.Address, ContainerID: s.Holder.ContainerID, IfName: s.Holder.IfName,
			Namespace: s.Holder.Namespace, Milliseconds: milliseconds(s.Holder.Since),
		}, true
	case s.Reservation:
		return PassSubject{
			Kind: kindReservation, LeaseDir: f.LeaseDir, Network: s.Lease.Network, Address: s.Lease.Address, Owner: s.Lease.Owner, Milliseconds: milliseconds(s.Lease.ReleasedAt),
			PresentSandbox: f.Fields.PresentSandbox, ElsewherePodUID: f.Fields.ElsewherePodUID,
		}, true
	case s.Checkpoint != nil:
		r := s.Checkpoint
		return PassSubject{
			Kind: kindCheckpoint, ContainerID: r.Attachment.ContainerID, IfName: r.Attachment.IfName, Namespace: r.Namespace, Milliseconds: milliseconds(r.CapturedAt),
		}, true
	case s.Unreadable != nil:
		return PassSubject{Kind: kindCheckpoint, ContainerID: s.Unreadable.ContainerID, IfName: s.Unreadable.IfName, Namespace: s.Unreadable.Partial.Namespace}, true
	}
	return PassSubject{}, false
}

func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// ownersToFree returns the owners of the reservations that are to be freed.
func ownersToFree(outcomes []PassOutcome) (owners []attachment.Owner) {
	visited := map[attachment.Owner]bool{}
	for _, d := range outcomes {
		if o := d.Subject.Lease.Owner; d.State == ToFree && d.Subject.Reservation && !visited[o] {
			visited[o] = true
			owners = append(owners, o)
		}
	}
	return owners
}
