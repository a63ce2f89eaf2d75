package lease

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func (n *node) usage(t *testing.T) (sets []string, remarks []string) {
	t.Helper()
	u, err := n.store(t).Usage(t.Context())
	must(t, err)
	for _, s := range u.Sets {
		sets = append(sets, fmt.Sprintf("%d %s: %s, %d held, %d reserved, %d in quarantine, %s free, %.3f", s.Set, s.Ranges, s.Size, s.Held, s.Reserved, s.Quarantined, s.Free, s.Share))
	}
	return append(sets, fmt.Sprintf("%d outside", u.Outside)), u.Remarks
}

func (n *node) expectUsage(t *testing.T, when string, want ...string) {
	t.Helper()
	got, _ := n.usage(t)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func TestUsageCountsWhatAddsGive(t *testing.T) {
	n := newNode(t, "10.3.0.11", stickyFor(time.Hour))
	n.sets[0][0].Excluded = []Span{span("10.3.0.4", "10.3.0.5"), span("10.3.0.250", "10.3.0.251")}
	n.sets = append(n.sets, RangeSet{{Span: span("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"), Subnet: netip.MustParsePrefix("2001:db8::/64"), Gateway: addr("2001:db8::1")}})
	const six = "1 2001:db8::1-2001:db8::ffff:ffff:ffff:ffff: 18446744073709551614, "
	n.reserve(t, "10.3.0.4", "excluded", 0)
	n.reserve(t, "10.9.0.9", "far away", 0)
	n.expectUsage(t, "before the first ADD", "2 outside")
	n.add(t, "c1/eth0", "web-0", "10.3.0.2 2001:db8::2")
	n.expectUsage(t, "one pod", "0 10.3.0.2-10.3.0.11: 8, 1 held, 0 reserved, 0 in quarantine, 7 free, 0.125",
		six+"1 held, 0 reserved, 0 in quarantine, 18446744073709551613 free, 0.000", "1 outside")
	n.add(t, "c2/eth0", "web-0", "10.3.0.2 2001:db8::2")
	n.add(t, "c3/eth0", "web-1", "10.3.0.3 2001:db8::3")
	n.del(t, "c3/eth0")
	n.expectUsage(t, "two holders are one, one reserved", "0 10.3.0.2-10.3.0.11: 8, 1 held, 1 reserved, 0 in quarantine, 6 free, 0.250",
		six+"1 held, 1 reserved, 0 in quarantine, 18446744073709551612 free, 0.000", "1 outside")
	first := n.sets
	n.sets = []RangeSet{tenAddresses(7)}
	n.policy = minute
	n.add(t, "c4/eth0", "web-4", "10.7.0.10")
	n.del(t, "c4/eth0")
	n.expectUsage(t, "the ranges of the last ADD", "0 10.7.0.10-10.7.0.19: 10, 0 held, 0 reserved, 1 in quarantine, 9 free, 0.000", "6 outside")
	n.later(time.Hour)
	n.expectUsage(t, "what has ended does not count", "0 10.7.0.10-10.7.0.19: 10, 0 held, 0 reserved, 0 in quarantine, 10 free, 0.000", "4 outside")
	n.sets, n.policy = first, stickyFor(time.Hour)
	n.add(t, "c2/eth0", "web-0", "10.3.0.2 2001:db8::2")
	n.expectUsage(t, "the first ranges again", "0 10.3.0.2-10.3.0.11: 8, 1 held, 0 reserved, 0 in quarantine, 7 free, 0.125",
		six+"1 held, 0 reserved, 0 in quarantine, 18446744073709551613 free, 0.000", "1 outside")
	n.reboot("boot-2", time.Second)
	n.expectUsage(t, "what was held before the boot is reserved", "0 10.3.0.2-10.3.0.11: 8, 0 held, 1 reserved, 0 in quarantine, 7 free, 0.125",
		six+"0 held, 1 reserved, 0 in quarantine, 18446744073709551613 free, 0.000", "1 outside")
}

func TestUsageOfASetWithoutAnAddress(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	n.sets[0][0].Excluded = []Span{span("10.3.0.0", "10.3.0.255")}
	n.add(t, "c1/eth0", "", "10.3.0.2")
	n.expectUsage(t, "all excluded", "0 10.3.0.2-10.3.0.9: 0, 0 held, 0 reserved, 0 in quarantine, 0 free, 0.000", "0 outside")
}

// Everything that is wrong has a remark, with what to do.
func TestUsageRemarks(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	for i := range 3 {
		n.add(t, fmt.Sprintf("c%d/eth0", i), fmt.Sprintf("web-%d", i), fmt.Sprintf("10.3.0.%d", i+2))
	}
	n.add(t, "c3/eth0", "", "10.3.0.5")
	expect := func(when string, want ...string) {
		t.Helper()
		_, got := n.usage(t)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	expect("nothing to remark")
	must(t, n.store(t).change(t.Context(), func(l *leaseTx) error {
		set := subnet("10.3.0.3", "10.3.0.9")
		set[0].Gateway = addr("10.3.0.2")
		return l.putLastRequested(RequestedRanges{Sets: []RangeSet{set}})
	}))
	expect("a pod has the gateway", "10.3.0.2, the gateway of 10.3.0.0/24, is held by eth0 of c0 on pods (pod default/web-0): "+
		"the other pods send their traffic to that pod. Delete that pod, and it gets another address. If its sandbox is gone, relink gc --leases --network pods frees the address")
}
