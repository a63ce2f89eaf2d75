package lease

import (
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// until returns how long the lease still lasts, "for ever" if it has no end.
func (n *node) until(when time.Time) string {
	if when.IsZero() {
		return "for ever"
	}
	return when.Sub(n.day).String()
}

// Whoever reserves an address, its lease never ends earlier because of that.
func TestReservingNeverShortens(t *testing.T) {
	hold := func(p Policy) func(t *testing.T, n *node) {
		return func(t *testing.T, n *node) {
			n.policy = p
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
		}
	}
	had := func(p Policy) func(t *testing.T, n *node) {
		return func(t *testing.T, n *node) {
			hold(p)(t, n)
			n.del(t, "c1/eth0")
		}
	}
	for name, test := range map[string]struct {
		before func(t *testing.T, n *node)
		retain time.Duration
		// byHand is how long the reservation by hand lasts. kept is how long the owner keeps the address once nobody
		// holds it.
		byHand, kept string
	}{
		"free":                                {func(*testing.T, *node) {}, time.Hour, "1h0m0s", "1h0m0s"},
		"free, for ever":                      {func(*testing.T, *node) {}, 0, "for ever", "for ever"},
		"held":                                {hold(minute), time.Hour, "1h0m0s", "1h0m0s"},
		"held, for ever":                      {hold(minute), 0, "for ever", "for ever"},
		"held and reserved for ever":          {inSequence(hold(minute), reservedFor(0)), time.Hour, "for ever", "for ever"},
		"held and reserved for longer":        {inSequence(hold(minute), reservedFor(2*time.Hour)), time.Hour, "2h0m0s", "2h0m0s"},
		"held and reserved for shorter":       {inSequence(hold(minute), reservedFor(time.Minute)), time.Hour, "1h0m0s", "1h0m0s"},
		"held and reserved until a while ago": {inSequence(inSequence(hold(minute), reservedFor(time.Minute)), waited(time.Hour)), time.Minute, "1m0s", "1m0s"},
		"held and sticky for ever":            {hold(sticky), time.Hour, "1h0m0s", "for ever"},
		"held and sticky for longer":          {hold(stickyFor(2 * time.Hour)), time.Hour, "1h0m0s", "2h0m0s"},
		"held and sticky for shorter":         {hold(stickyFor(2 * time.Minute)), time.Hour, "1h0m0s", "1h0m0s"},
		"held, for less than the quarantine":  {hold(minute), time.Second, "1s", "1m0s"},
		"reserved for ever":                   {had(sticky), time.Hour, "for ever", "for ever"},
		"reserved for longer":                 {had(stickyFor(2 * time.Hour)), time.Hour, "2h0m0s", "2h0m0s"},
		"reserved for shorter":                {had(stickyFor(2 * time.Minute)), time.Hour, "1h0m0s", "1h0m0s"},
		"reserved by hand for ever":           {reservedFor(0), time.Hour, "for ever", "for ever"},
		"reserved by hand for longer":         {reservedFor(2 * time.Hour), time.Hour, "2h0m0s", "2h0m0s"},
		"in quarantine":                       {had(minute), time.Hour, "1h0m0s", "1h0m0s"},
		"in quarantine, for less than that":   {had(minute), time.Second, "1m0s", "1m0s"},
		"in quarantine, for ever":             {had(minute), 0, "for ever", "for ever"},
		"reserved, and that has ended":        {inSequence(had(stickyFor(time.Hour)), waited(2*time.Hour)), time.Minute, "1m0s", "1m0s"},
	} {
		n := newNode(t, "10.3.0.9", minute)
		test.before(t, n)
		l := n.reserve(t, "10.3.0.2", "web-0", test.retain)
		if got := n.until(l.ByHandUntil); got != test.byHand || !l.ByHand || !l.ByHandAt.Equal(n.day) {
			t.Errorf("%s: by hand %t at %s, for %s, want %s", name, l.ByHand, l.ByHandAt, got, test.byHand)
		}
		n.del(t, "c1/eth0")
		l = n.get(t, "10.3.0.2")
		if got := n.until(l.Until); got != test.kept {
			t.Errorf("%s: kept for %s, want %s", name, got, test.kept)
		}
		if l.State != Reserved && l.State != Quarantined || l.Owner != pod("web-0") {
			t.Errorf("%s: %s for %s", name, l.State, l.Owner)
		}
		n.expectVerified(t)
	}
}

func inSequence(a, b func(*testing.T, *node)) func(*testing.T, *node) {
	return func(t *testing.T, n *node) {
		t.Helper()
		a(t, n)
		b(t, n)
	}
}

// reservedFor returns an action that reserves the address by hand for web-0.
func reservedFor(retain time.Duration) func(*testing.T, *node) {
	return func(t *testing.T, n *node) {
		t.Helper()
		n.reserve(t, "10.3.0.2", "web-0", retain)
	}
}

func waited(d time.Duration) func(*testing.T, *node) {
	return func(_ *testing.T, n *node) { n.later(d) }
}

func TestReserveWhatIsAnothers(t *testing.T) {
	for name, test := range map[string]struct {
		before func(t *testing.T, n *node)
		is     error
		msg    string
	}{
		"held by another": {func(t *testing.T, n *node) { n.add(t, "c1/eth0", "web-1", "10.3.0.2") },
			ErrTaken, "10.3.0.2 is not available: it is held by eth0 of c1 on pods (pod default/web-1)"},
		"held by two of another": {func(t *testing.T, n *node) {
			n.policy = sticky
			n.add(t, "c1/eth0", "web-1", "10.3.0.2")
			n.add(t, "c2/eth0", "web-1", "10.3.0.2")
		}, ErrTaken, "10.3.0.2 is not available: it is held by eth0 of c1 on pods and eth0 of c2 on pods (pod default/web-1)"},
		"held by nobody's": {func(t *testing.T, n *node) { n.add(t, "c1/eth0", "", "10.3.0.2") },
			ErrTaken, "10.3.0.2 is not available: it is held by eth0 of c1 on pods"},
		"reserved for another": {func(t *testing.T, n *node) { n.reserve(t, "10.3.0.2", "web-1", time.Hour) },
			ErrTaken, "10.3.0.2 is not available: it is reserved for pod default/web-1"},
		"held back by an import": {func(t *testing.T, n *node) {
			n.takeIn(t, "host-local", Lease{Address: addr("10.3.0.2"), State: Reserved, Reason: "its file is torn"})
		}, ErrTaken, "10.3.0.2 is not available: it is reserved: its file is torn"},
		"reserved for another until a while ago": {func(t *testing.T, n *node) {
			n.reserve(t, "10.3.0.2", "web-1", time.Hour)
			n.later(time.Hour)
		}, nil, "<nil>"},
		"in quarantine": {func(t *testing.T, n *node) { n.add(t, "c1/eth0", "web-1", "10.3.0.2"); n.del(t, "c1/eth0") }, nil, "<nil>"},
		"held in an earlier boot": {func(t *testing.T, n *node) {
			n.add(t, "c1/eth0", "web-1", "10.3.0.2")
			n.reboot("boot-2", time.Second)
		}, nil, "<nil>"},
	} {
		n := newNode(t, "10.3.0.9", minute)
		test.before(t, n)
		_, err := n.store(t).Reserve(t.Context(), addr("10.3.0.2"), pod("web-0"), 0)
		n.refused(t, name, err, test.is, test.msg)
		n.expectVerified(t)
	}
	n := newNode(t, "10.3.0.9", minute)
	if _, err := n.store(t).Reserve(t.Context(), addr("10.3.0.2"), attachment.Owner{}, 0); err == nil || err.Error() != "an address cannot be reserved for nobody" {
		t.Errorf("for nobody: %v", err)
	}
}

// A reservation by hand comes back each time the address is given up.
func TestReservationByHandSurvivesItsUse(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	n.reserve(t, "10.3.0.9", "web-0", 2*time.Hour)
	for _, sandbox := range []string{"c1/eth0", "c2/eth0"} {
		n.add(t, sandbox, "web-0", "10.3.0.9")
		n.later(time.Minute)
		n.del(t, sandbox)
		n.expect(t, "given up", "10.3.0.9 reserved "+sandbox+" web-0")
		if l := n.get(t, "10.3.0.9"); !l.Until.Equal(l.ByHandUntil) {
			t.Errorf("until %s, by hand until %s", l.Until, l.ByHandUntil)
		}
	}
	n.add(t, "c3/eth0", "web-0", "10.3.0.9")
	n.later(2 * time.Hour)
	n.del(t, "c3/eth0")
	n.expect(t, "after it has ended", "10.3.0.9 quarantined c3/eth0 web-0")
	if l := n.get(t, "10.3.0.9"); l.ByHand || !l.ByHandAt.IsZero() || !l.ByHandUntil.IsZero() {
		t.Errorf("what has ended is still there: %+v", l)
	}
}
