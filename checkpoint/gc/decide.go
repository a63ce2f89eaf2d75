package gc

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/change"
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
	if s.Reservation {
		t = PassSubject{
			Kind: kindReservation, Owner: f.Owner, Milliseconds: milliseconds(f.Fields.ReleasedAt),
			PresentSandbox: f.Fields.PresentSandbox, ElsewherePodUID: f.Fields.ElsewherePodUID,
		}
	} else {
		t = PassSubject{
			Kind: kindCheckpoint, ContainerID: f.Attachment.ContainerID, IfName: f.Attachment.IfName, Namespace: f.Fields.Namespace,
			Milliseconds: milliseconds(f.Fields.Since),
		}
	}
	if s.Holder != nil {
		t.Kind = kindHolder
	}
	if s.Lease.Address.IsValid() {
		t.LeaseDir, t.Network, t.Address = f.LeaseDir, f.Network, f.Address
	}
	return t, s.Holder != nil || s.Reservation || s.Checkpoint != nil || s.Unreadable != nil
}

func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
