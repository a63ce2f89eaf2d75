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
	// LeastGrace is longer than a kubelet waits for an ADD by default: 4 minutes, twice its runtimeRequestTimeout.
	LeastGrace = 5 * time.Minute
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
	Do      Verb
	Finding audit.Finding
	Why     string
	// Until is when it can be freed, if Do is Wait and it is seen again. New says that no earlier pass has seen it.
	Until time.Time
	New   bool
}

// Moment is when a pass decides.
type Moment struct {
	BootID string
	// Uptime is the time since the boot: nobody can set it.
	Uptime time.Duration
	// Now is the time of day, for people.
	Now time.Time
}

// Decide says what to do about each finding that is about a lease, a reservation or a checkpoint of somebody who may be
// gone. earlier are the sightings of the pass before. The sightings that it returns replace them: what is not seen now
// begins anew when it is seen again. What earlier passes saw in directories that this one did not read stays.
func Decide(report audit.Report, earlier Sightings, at Moment, grace time.Duration) ([]Decision, Sightings) {
	now := Sightings{BootID: at.BootID, Seen: append([]Sighting{}, earlier.elsewhere(report.LeaseDirs, at)...)}
	before := earlier.byThing(at)
	var all []Decision
	for _, f := range report.Findings {
		thing, ok := thingOf(f)
		if !ok {
			continue
		}
		d := Decision{Do: Keep, Finding: f, Why: "nothing proves that it can be freed"}
		if f.Proven {
			first, known := before[thing]
			if !known {
				first = at.Uptime
			}
			now.Seen = append(now.Seen, Sighting{Thing: thing, FirstSeen: first})
			d.decide(known, at, first, grace)
		}
		all = append(all, d)
	}
	return all, now
}

// decide is for a thing that is proven dead.
func (d *Decision) decide(known bool, at Moment, first, grace time.Duration) {
	since := at.Uptime - first
	switch {
	case known && since >= grace:
		d.Do, d.Why = Free, fmt.Sprintf("seen dead twice, %s apart", since.Round(time.Second))
	case known:
		d.Do, d.Why = Wait, fmt.Sprintf("seen dead for %s, and %s are needed", since.Round(time.Second), inWords(grace))
	default:
		d.Do, d.New, d.Why = Wait, true, fmt.Sprintf("seen dead for the first time: it must be seen dead again after %s", inWords(grace))
	}
	d.Until = at.Now.Add(grace - since)
}

// inWords is the duration without minutes and seconds that are zero.
func inWords(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// thingOf returns what the finding is about. ok is false for a finding about nothing that could ever be freed.
func thingOf(f audit.Finding) (t Thing, ok bool) {
	s := f.Subject
	switch {
	case s.Holder != nil:
		return Thing{
			What: aHolder, LeaseDir: f.LeaseDir, Network: s.Lease.Network, Address: s.Lease.Address, ContainerID: s.Holder.ContainerID, IfName: s.Holder.IfName,
			Namespace: s.Holder.Namespace, At: milliseconds(s.Holder.Since),
		}, true
	case s.Reservation:
		return Thing{
			What: aReservation, LeaseDir: f.LeaseDir, Network: s.Lease.Network, Address: s.Lease.Address, Owner: s.Lease.Owner, At: milliseconds(s.Lease.ReleasedAt),
			Present: f.Fields.Present, Elsewhere: f.Fields.Elsewhere,
		}, true
	case s.Checkpoint != nil:
		r := s.Checkpoint
		return Thing{
			What: aCheckpoint, ContainerID: r.Attachment.ContainerID, IfName: r.Attachment.IfName, Namespace: r.Namespace, At: milliseconds(r.CapturedAt),
		}, true
	case s.Unreadable != nil:
		return Thing{What: aCheckpoint, ContainerID: s.Unreadable.ContainerID, IfName: s.Unreadable.IfName, Namespace: s.Unreadable.Left.Namespace}, true
	}
	return Thing{}, false
}

func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// ownersToFree returns the owners of the reservations that are to be freed.
func ownersToFree(all []Decision) (owners []attachment.Owner) {
	seen := map[attachment.Owner]bool{}
	for _, d := range all {
		if o := d.Finding.Subject.Lease.Owner; d.Do == Free && d.Finding.Subject.Reservation && !seen[o] {
			seen[o] = true
			owners = append(owners, o)
		}
	}
	return owners
}
