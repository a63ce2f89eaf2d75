package gc

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

var noon = time.Date(2026, 2, 3, 12, 0, 0, 0, time.UTC)

// at is a moment so long after the boot.
func at(uptime time.Duration) Moment { return Moment{BootID: "boot", Uptime: uptime, Time: noon} }

func ofHolder(proven bool) audit.Finding {
	h := lease.Holder{ContainerID: "c1", IfName: "eth0", Namespace: attachment.Namespace{Inode: 1, Cookie: 2, BootID: "boot"}, Since: noon}
	l := lease.Lease{Address: netip.MustParseAddr("10.3.0.2"), Network: "lan", State: lease.Held, Holders: []lease.Holder{h}}
	return audit.Finding{
		Kind: audit.LeaseWithoutSandbox, Proven: proven, Attachment: h.Key("lan"), Network: "lan", Address: l.Address,
		Fields: audit.Fields{Namespace: h.Namespace, Since: h.Since}, Subject: audit.Subject{Lease: l, Holder: &h},
	}
}

func ofReservation(o attachment.Owner, released time.Time, present string) audit.Finding {
	l := lease.Lease{Address: netip.MustParseAddr("10.3.0.2"), Network: "lan", State: lease.Reserved, Owner: o, ReleasedAt: released}
	return audit.Finding{
		Kind: audit.ReservationWithoutOwner, Proven: true, Network: "lan", Address: l.Address, Owner: o,
		Fields: audit.Fields{PresentSandbox: present, ReleasedAt: released}, Subject: audit.Subject{Lease: l, Reservation: true},
	}
}

func ofCheckpoint(captured time.Time) audit.Finding {
	r := checkpoint.Record{Attachment: attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, CapturedAt: captured}
	return audit.Finding{
		Kind: audit.CheckpointWithoutSandbox, Proven: true, Attachment: r.Attachment, Fields: audit.Fields{Since: captured}, Subject: audit.Subject{Checkpoint: &r},
	}
}

// seen is a look at a finding. A finding that is nil is not there in that pass.
type seen struct {
	at      Moment
	finding *audit.Finding
}

func TestWhatIsSeenTwiceIsFreed(t *testing.T) {
	proven, unproven := ofHolder(true), ofHolder(false)
	newer := ofHolder(true)
	newer.Fields.Since = noon.Add(time.Second)
	otherNamespace := ofHolder(true)
	otherNamespace.Fields.Namespace.Cookie = 3
	web := attachment.Owner{Kind: "StatefulSet", Name: "web", UID: "u1"}
	reservation, again, ofNewUID := ofReservation(web, noon, ""), ofReservation(web, noon.Add(time.Second), ""), ofReservation(attachment.Owner{Kind: "StatefulSet", Name: "web", UID: "u2"}, noon, "")
	unused, unusedBy2 := ofReservation(web, noon, "c1"), ofReservation(web, noon, "c2")
	record, written := ofCheckpoint(noon), ofCheckpoint(noon.Add(time.Second))
	afterBoot := at(time.Hour)
	afterBoot.BootID = "next boot"
	const first, twice = "seen dead for 0s, and 10m0s are needed", "seen dead twice, 10m0s apart"
	for name, test := range map[string]struct {
		passes []seen
		do     change.State
		why    string
	}{
		"once":                       {[]seen{{at(0), &proven}}, Waiting, first},
		"twice, a grace apart":       {[]seen{{at(0), &proven}, {at(10 * time.Minute), &proven}}, ToFree, twice},
		"twice, too soon":            {[]seen{{at(0), &proven}, {at(9 * time.Minute), &proven}}, Waiting, "seen dead for 9m0s, and 10m0s are needed"},
		"many times":                 {[]seen{{at(0), &proven}, {at(4 * time.Minute), &proven}, {at(8 * time.Minute), &proven}, {at(12 * time.Minute), &proven}}, ToFree, "seen dead twice, 12m0s apart"},
		"not in between":             {[]seen{{at(0), &proven}, {at(5 * time.Minute), nil}, {at(10 * time.Minute), &proven}}, Waiting, first},
		"not proven in between":      {[]seen{{at(0), &proven}, {at(5 * time.Minute), &unproven}, {at(10 * time.Minute), &proven}}, Waiting, first},
		"not proven any more":        {[]seen{{at(0), &proven}, {at(10 * time.Minute), &unproven}}, change.Kept, ""},
		"before a boot":              {[]seen{{at(0), &proven}, {afterBoot, &proven}}, Waiting, first},
		"later than now":             {[]seen{{at(time.Hour), &proven}, {at(10 * time.Minute), &proven}}, Waiting, first},
		"given again":                {[]seen{{at(0), &proven}, {at(10 * time.Minute), &newer}}, Waiting, first},
		"in another namespace":       {[]seen{{at(0), &proven}, {at(10 * time.Minute), &otherNamespace}}, Waiting, first},
		"a reservation":              {[]seen{{at(0), &reservation}, {at(10 * time.Minute), &reservation}}, ToFree, twice},
		"reserved again":             {[]seen{{at(0), &reservation}, {at(10 * time.Minute), &again}}, Waiting, first},
		"another UID":                {[]seen{{at(0), &reservation}, {at(10 * time.Minute), &ofNewUID}}, Waiting, first},
		"unused":                     {[]seen{{at(0), &unused}, {at(10 * time.Minute), &unused}}, ToFree, twice},
		"unused by another sandbox":  {[]seen{{at(0), &unused}, {at(10 * time.Minute), &unusedBy2}}, Waiting, first},
		"unused, and then its owner": {[]seen{{at(0), &unused}, {at(10 * time.Minute), &reservation}}, Waiting, first},
		"a checkpoint":               {[]seen{{at(0), &record}, {at(10 * time.Minute), &record}}, ToFree, twice},
		"a checkpoint written anew":  {[]seen{{at(0), &record}, {at(10 * time.Minute), &written}}, Waiting, first},
	} {
		var sightings Sightings
		var decisions []PassOutcome
		for _, s := range test.passes {
			r := audit.NodeReport{}
			if s.finding != nil {
				r.Findings = []audit.Finding{*s.finding}
			}
			decisions, sightings = Decide(r, sightings, s.at, Options{Grace: 10 * time.Minute})
		}
		if len(decisions) != 1 || decisions[0].State != test.do || decisions[0].Reason != test.why {
			t.Errorf("%s: %+v, want %s, %q", name, decisions, test.do, test.why)
		}
	}
}

// The end of a wait is told by the time of day.
func TestUntil(t *testing.T) {
	r := audit.NodeReport{Findings: []audit.Finding{ofHolder(true)}}
	decisions, sightings := Decide(r, Sightings{}, at(0), Options{Grace: 10 * time.Minute})
	if want := noon.Add(10 * time.Minute); !decisions[0].Until.Equal(want) {
		t.Errorf("%s, want %s", decisions[0].Until, want)
	}
	decisions, _ = Decide(r, sightings, at(4*time.Minute), Options{Grace: 10 * time.Minute})
	if want := noon.Add(6 * time.Minute); !decisions[0].Until.Equal(want) {
		t.Errorf("%s, want %s", decisions[0].Until, want)
	}
}

// What is fine, and what is wrong with a living pod, is nothing that can be freed.
func TestOthersAreNotDecidedAbout(t *testing.T) {
	r := audit.NodeReport{Findings: []audit.Finding{{Kind: audit.Fine}, {Kind: audit.LostInterface, Severity: audit.Error}, {Kind: audit.Unknown, Severity: audit.Error}}}
	if decisions, sightings := Decide(r, Sightings{}, at(0), Options{Grace: time.Minute}); len(decisions) != 0 || len(sightings.List) != 0 {
		t.Errorf("%+v, %+v", decisions, sightings)
	}
}

// The sightings say whose reservations were seen, so that these owners are asked for in the next pass.
func TestOwnersOfSightings(t *testing.T) {
	web := attachment.Owner{Kind: "StatefulSet", Name: "web"}
	r := audit.NodeReport{Findings: []audit.Finding{ofReservation(web, noon, ""), ofReservation(web, noon.Add(time.Second), ""), ofHolder(true)}}
	_, sightings := Decide(r, Sightings{}, at(0), Options{Grace: time.Minute})
	if diff := cmp.Diff([]attachment.Owner{web}, sightings.Owners()); diff != "" {
		t.Error(diff)
	}
}
