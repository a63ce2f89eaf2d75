package reclaim

import (
	"fmt"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/pkg/attachment"
	ipamreclaim "github.com/relink-cni/relink/pkg/ipam/reclaim"
)

const (
	// DefaultGrace is the time between two sightings.
	DefaultGrace = ipamreclaim.LongestADD
	// MinGrace is longer than a kubelet waits for an ADD by default: 4 minutes, twice its runtimeRequestTimeout.
	MinGrace = 5 * time.Minute
)

// Verb is what to do about a thing.
type Verb string

// The verbs.
const (
	Free Verb = "free"
	// Wait says that it is proven dead, and was not seen so twice a grace apart.
	Wait Verb = "wait"
	// Keep says that nothing proves it dead.
	Keep Verb = "keep"
)

// Decision is what to do about one thing, and why.
type Decision struct {
	Verb    Verb
	Finding audit.Finding
	Reason  string
	// Until is when it can be freed, if Verb is Wait and it is seen again. New says that no earlier pass has seen it.
	Until time.Time
	New   bool
}

// Moment is when a pass decides.
type Moment struct {
	BootID string
	// Uptime is the time since the boot: nobody can set it.
	Uptime time.Duration
	// Time is the time of day, for people.
	Time time.Time
}

// Decide says what to do about each finding that is about a lease, a reservation or a checkpoint of somebody who may be
// gone. earlier are the sightings of the pass before. The sightings that it returns replace them: what is not seen now
// begins anew when it is seen again. What earlier passes saw in directories that this one did not read stays.
func Decide(report audit.NodeReport, earlier Sightings, moment Moment, grace time.Duration) ([]Decision, Sightings) {
	current := Sightings{BootID: moment.BootID, List: append([]Sighting{}, earlier.inOtherDirs(report.LeaseDirs, moment)...)}
	before := earlier.bySubject(moment)
	var decisions []Decision
	for _, f := range report.Findings {
		subject, ok := subjectOf(f)
		if !ok {
			continue
		}
		d := Decision{Verb: Keep, Finding: f, Reason: "nothing proves that it can be freed"}
		if f.Proven {
			first, ok := before[subject]
			if !ok {
				first = moment.Uptime
			}
			current.List = append(current.List, Sighting{GCSubject: subject, FirstSeen: first})
			d.decide(ok, moment, first, grace)
		}
		decisions = append(decisions, d)
	}
	return decisions, current
}

// decide is for a thing that is proven dead.
func (d *Decision) decide(repeated bool, moment Moment, first, grace time.Duration) {
	since := moment.Uptime - first
	switch {
	case repeated && since >= grace:
		d.Verb, d.Reason = Free, fmt.Sprintf("seen dead twice, %s apart", since.Round(time.Second))
	case repeated:
		d.Verb, d.Reason = Wait, fmt.Sprintf("seen dead for %s, and %s are needed", since.Round(time.Second), formatDuration(grace))
	default:
		d.Verb, d.New, d.Reason = Wait, true, fmt.Sprintf("seen dead for the first time: it must be seen dead again after %s", formatDuration(grace))
	}
	d.Until = moment.Time.Add(grace - since)
}

// formatDuration is the duration without minutes and seconds that are zero.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// subjectOf returns what the finding is about. ok is false for a finding about nothing that could ever be freed.
func subjectOf(f audit.Finding) (t GCSubject, ok bool) {
	s := f.Subject
	switch {
	case s.Holder != nil:
		return GCSubject{
			Kind: kindHolder, LeaseDir: f.LeaseDir, Network: s.Lease.Network, Address: s.Lease.Address, ContainerID: s.Holder.ContainerID, IfName: s.Holder.IfName,
			Namespace: s.Holder.Namespace, Milliseconds: milliseconds(s.Holder.Since),
		}, true
	case s.Reservation:
		return GCSubject{
			Kind: kindReservation, LeaseDir: f.LeaseDir, Network: s.Lease.Network, Address: s.Lease.Address, Owner: s.Lease.Owner, Milliseconds: milliseconds(s.Lease.ReleasedAt),
			PresentSandbox: f.Fields.PresentSandbox, ElsewherePodUID: f.Fields.ElsewherePodUID,
		}, true
	case s.Checkpoint != nil:
		r := s.Checkpoint
		return GCSubject{
			Kind: kindCheckpoint, ContainerID: r.Attachment.ContainerID, IfName: r.Attachment.IfName, Namespace: r.Namespace, Milliseconds: milliseconds(r.CapturedAt),
		}, true
	case s.Unreadable != nil:
		return GCSubject{Kind: kindCheckpoint, ContainerID: s.Unreadable.ContainerID, IfName: s.Unreadable.IfName, Namespace: s.Unreadable.Partial.Namespace}, true
	}
	return GCSubject{}, false
}

func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// ownersToFree returns the owners of the reservations that are to be freed.
func ownersToFree(decisions []Decision) (owners []attachment.Owner) {
	visited := map[attachment.Owner]bool{}
	for _, d := range decisions {
		if o := d.Finding.Subject.Lease.Owner; d.Verb == Free && d.Finding.Subject.Reservation && !visited[o] {
			visited[o] = true
			owners = append(owners, o)
		}
	}
	return owners
}
