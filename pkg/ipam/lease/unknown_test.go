package lease

import (
	"fmt"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// The fields of a newer relink stay with a lease and its holders, whatever this relink does to the lease.
func TestFieldsOfANewerRelinkSurvive(t *testing.T) {
	a := addr("10.3.0.2")
	// The lease has field 7. Its holders have 8 and 9, or its last holder has 8.
	for name, test := range map[string]struct {
		// reserved says that the address waits for its owner and nobody holds it.
		reserved bool
		do       func(t *testing.T, n *node) error
		want     string
	}{
		"DEL of one holder":    {false, func(t *testing.T, n *node) error { n.del(t, "c2/eth0"); return nil }, "held 7 holders 8"},
		"DEL of the other one": {false, func(t *testing.T, n *node) error { n.del(t, "c1/eth0"); return nil }, "held 7 holders 9"},
		"DEL of both": {false, func(t *testing.T, n *node) error {
			n.del(t, "c1/eth0")
			n.del(t, "c2/eth0")
			return nil
		}, "reserved 7 last 9"},
		"settled": {false, func(t *testing.T, n *node) error { n.settled(t, "c2/eth0"); return nil }, "held 7 holders 9"},
		"GC": {false, func(t *testing.T, n *node) error {
			return n.store(t).Collect(t.Context(), func(k Holder) bool { return k.ContainerID == "c1" })
		}, "held 7 holders 8"},
		"abandon": {false, func(t *testing.T, n *node) error {
			l := n.get(t, a.String())
			return n.store(t).RemoveHolder(t.Context(), l, l.Holders[0], "gone")
		}, "held 7 holders 9"},
		"the next sandbox": {false, func(t *testing.T, n *node) error { n.add(t, "c3/eth0", "web-0", a.String()); return nil }, "held 7 holders 8 9 -"},
		"reserve what is held": {false, func(t *testing.T, n *node) error {
			n.reserve(t, a.String(), "web-0", time.Hour)
			return nil
		}, "held 7 holders 8 9"},
		"release of one holder by hand": {false, func(t *testing.T, n *node) error {
			l := n.get(t, a.String())
			return n.store(t).ReleaseByHand(t.Context(), l, l.Holders[0])
		}, "held 7 holders 9"},
		"release of all holders by hand": {false, func(t *testing.T, n *node) error {
			err := n.store(t).ReleaseByHand(t.Context(), n.get(t, a.String()))
			return err
		}, "quarantined 7 last 9"},
		"conflict": {false, func(t *testing.T, n *node) error {
			n.del(t, "c2/eth0")
			_, err := n.store(t).Conflict(t.Context(), n.key("c1/eth0"), a, "02:00:00:00:00:01")
			return err
		}, "quarantined 7 last 8"},
		"reset of the clock": {false, func(t *testing.T, n *node) error {
			n.day = n.day.AddDate(1, 0, 0)
			_, err := n.store(t).ResetClock(t.Context())
			return err
		}, "held 7 holders 8 9"},
		"boot": {false, func(t *testing.T, n *node) error {
			n.reboot("boot-2", time.Minute)
			n.add(t, "other/eth0", "web-1", "10.3.0.3")
			return nil
		}, "reserved 7 last 9"},
		"reserve what is reserved": {true, func(t *testing.T, n *node) error {
			n.reserve(t, a.String(), "web-0", time.Hour)
			return nil
		}, "reserved 7 last 8"},
		"release of what is reserved": {true, func(t *testing.T, n *node) error {
			err := n.store(t).ReleaseByHand(t.Context(), n.get(t, a.String()))
			return err
		}, "quarantined 7 last 8"},
		"reset of the clock, reserved": {true, func(t *testing.T, n *node) error {
			n.day = n.day.AddDate(-1, 0, 0)
			_, err := n.store(t).ResetClock(t.Context())
			return err
		}, "reserved 7 last 8"},
		"the owner's ADD": {true, func(t *testing.T, n *node) error { n.add(t, "c3/eth0", "web-0", a.String()); return nil }, "held 7 holders -"},
		"another address for the owner": {true, func(t *testing.T, n *node) error {
			n.addWanted(t, "c3/eth0", "web-0", "10.3.0.9")
			return nil
		}, "quarantined 7 last 8"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", sticky)
			n.add(t, "c1/eth0", "web-0", a.String())
			if test.reserved {
				n.del(t, "c1/eth0")
			} else {
				n.add(t, "c2/eth0", "web-0", a.String())
			}
			edit(t, n.path(), func(tx *bolt.Tx) error {
				leases := tx.Bucket([]byte(bucketLeases))
				return leases.Put(addressKey(a), withFuture(leases.Get(addressKey(a)), 7))
			})
			must(t, test.do(t, n))
			if got := fields(n.get(t, a.String())); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			n.expectVerified(t)
		})
	}
}

// fields returns the fields of a newer relink in a lease and its holders.
func fields(l Lease) string {
	field := func(u Unknown) string {
		switch future, ok := u["future"]; {
		case len(u) == 0:
			return " -"
		case ok && len(u) == 1:
			return " " + string(future)
		}
		return fmt.Sprintf(" %s", u)
	}
	text := string(l.State) + field(l.Unknown)
	if len(l.Holders) > 0 {
		text += " holders"
	}
	for _, h := range l.Holders {
		text += field(h.Unknown)
	}
	if len(l.Last.Unknown) > 0 {
		text += " last" + field(l.Last.Unknown)
	}
	return text
}
