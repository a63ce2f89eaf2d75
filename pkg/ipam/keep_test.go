package ipam

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

const (
	small  = `"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.2", "rangeEnd": "10.3.0.4"`
	sticky = `"subnet": "10.3.0.0/24", "sticky": "pod"`
)

func TestAddThatIsRepeatedGivesTheSame(t *testing.T) {
	n := newNode(t, `"ranges": [[{"subnet": "10.3.0.0/24"}], [{"subnet": "2001:db8::/64"}]]`)
	for range 3 {
		n.add(t, "c1/eth0", "web-0", "10.3.0.2 2001:db8::2")
		n.later(time.Hour)
	}
	n.expect(t, "after three ADDs", "10.3.0.2 held c1/eth0 web-0", "2001:db8::2 held c1/eth0 web-0")
	_, err := n.tryAdd(t, "c1/eth0", "web-0", "10.3.0.9")
	n.expectError(t, "another address", err, 4, `invalid CNI_ARGS: "IP=10.3.0.9": cannot be given: eth0 of c1 on pods holds 10.3.0.2 already; DEL it first`)
	if got, err := n.tryAdd(t, "c1/eth0", "web-0", "10.3.0.2"); err != nil || got != "10.3.0.2 2001:db8::2" {
		t.Errorf("the same address asked for: %s, %v", got, err)
	}
}

// A StatefulSet's next pod starts before the last one's sandbox is torn down. The address changes hands in one step,
// and the late DEL frees nothing.
func TestStickyAddressIsTakenOverBeforeTheOldSandboxGoes(t *testing.T) {
	n := newNode(t, sticky)
	n.add(t, "old/eth0", "web-0", "10.3.0.2")
	n.add(t, "new/eth0", "web-0", "10.3.0.2")
	n.expect(t, "taken over", "10.3.0.2 held old/eth0+new/eth0 web-0")
	n.del(t, "old/eth0")
	n.expect(t, "after the late DEL", "10.3.0.2 held new/eth0 web-0")
	n.add(t, "other/eth0", "web-1", "10.3.0.3")
	n.del(t, "new/eth0")
	n.expect(t, "after its own DEL", "10.3.0.2 reserved new/eth0 web-0", "10.3.0.3 held other/eth0 web-1")
	if got, err := n.tryAdd(t, "late/eth0", "web-0", "10.3.0.2"); err != nil || got != "10.3.0.2" {
		t.Errorf("the reserved address asked for by its owner: %s, %v", got, err)
	}
}

func TestWithoutStickyEachSandboxHasItsOwnAddress(t *testing.T) {
	n := newNode(t, `"subnet": "10.3.0.0/24"`)
	n.add(t, "old/eth0", "web-0", "10.3.0.2")
	n.add(t, "new/eth0", "web-0", "10.3.0.3")
	n.del(t, "old/eth0")
	n.expect(t, "after the DEL of the old", "10.3.0.2 quarantined old/eth0 web-0", "10.3.0.3 held new/eth0 web-0")
	n.del(t, "new/eth0")
	n.expect(t, "after both", "10.3.0.2 quarantined old/eth0 web-0", "10.3.0.3 quarantined new/eth0 web-0")
}

func TestInterfacesOfAPodKeepTheirAddresses(t *testing.T) {
	for name, order := range map[string][]string{"in order": {"eth0", "net1"}, "the other way round": {"net1", "eth0"}} {
		n := newNode(t, sticky)
		n.add(t, "c1/eth0", "web-0", "10.3.0.2")
		n.add(t, "c1/net1", "web-0", "10.3.0.3")
		addresses := map[string]string{"eth0": "10.3.0.2", "net1": "10.3.0.3"}
		// The old sandbox still exists.
		for _, ifname := range order {
			n.add(t, "c2/"+ifname, "web-0", addresses[ifname])
		}
		for _, ifname := range order {
			n.del(t, "c1/"+ifname)
			n.del(t, "c2/"+ifname)
		}
		n.expect(t, name, "10.3.0.2 reserved c2/eth0 web-0", "10.3.0.3 reserved c2/net1 web-0")
		// The old sandbox is gone.
		for _, ifname := range order {
			n.add(t, "c3/"+ifname, "web-0", addresses[ifname])
		}
		// One of the old sandbox's two interfaces is gone.
		n.del(t, "c3/eth0")
		n.add(t, "c4/net1", "web-0", "10.3.0.3")
		n.add(t, "c4/eth0", "web-0", "10.3.0.2")
	}
}

func TestPodsOfOneNameInTwoNamespacesAreTwo(t *testing.T) {
	n := newNode(t, sticky)
	n.add(t, "c1/eth0", "db", "10.3.0.2")
	other := n.args("c2/eth0", "")
	other.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=db"
	g, err := n.begin(t, other).Add(t.Context())
	if err != nil || g.Result.IPs[0].Address.IP.String() != "10.3.0.3" {
		t.Errorf("%v, %v", g, err)
	}
	nobody := n.args("c3/eth0", "")
	nobody.Args = "IgnoreUnknown=1"
	_, err = n.begin(t, nobody).Add(t.Context())
	n.expectError(t, "no pod", err, 4, `invalid CNI_ARGS: "IgnoreUnknown=1": must have K8S_POD_NAMESPACE and K8S_POD_NAME: with "sticky": "pod" an address is kept for the pod`)
}

// After its quarantine, nothing in the file remembers an address. The file of a node that has started a million pods is
// as small as after ten pods.
func TestNothingIsLeftAfterTheQuarantine(t *testing.T) {
	n := newNode(t, `"subnet": "10.3.0.0/24"`)
	for i := range 9 {
		n.add(t, fmt.Sprintf("c%d/eth0", i), "web-0", fmt.Sprintf("10.3.0.%d", i+2))
		n.del(t, fmt.Sprintf("c%d/eth0", i))
	}
	n.later(time.Minute - time.Millisecond)
	n.add(t, "last/eth0", "", "10.3.0.11")
	if got := n.residue(t)["leases"]; got != 10 {
		t.Errorf("%d leases before the end of the quarantine", got)
	}
	n.later(time.Millisecond)
	n.expect(t, "at its end", "10.3.0.11 held last/eth0")
	n.add(t, "last/eth0", "", "10.3.0.11")
	want := map[string]int{"leases": 1, "attachments": 1, "owners": 0, "runs": 1, "ends": 0}
	if diff := cmp.Diff(want, n.residue(t)); diff != "" {
		t.Errorf("at its end (-want +got):\n%s", diff)
	}
	n.del(t, "last/eth0")
	n.later(time.Minute)
	n.add(t, "c1/eth0", "", "10.3.0.12")
	if diff := cmp.Diff(want, n.residue(t)); diff != "" {
		t.Errorf("for the next (-want +got):\n%s", diff)
	}
}

// An ADD clears away some of the ended leases, not all at once.
func TestNoAddPaysForAllThatHasEnded(t *testing.T) {
	const atOnce = 64 // The number that one ADD clears away.
	n := newNode(t, `"subnet": "10.3.0.0/24", "sticky": "pod", "retain": "1h"`)
	for i := range 2 * atOnce {
		n.add(t, fmt.Sprintf("c%d/eth0", i), fmt.Sprintf("web-%d", i), fmt.Sprintf("10.3.0.%d", i+2))
		n.del(t, fmt.Sprintf("c%d/eth0", i))
	}
	n.later(2 * time.Hour)
	n.add(t, "x/eth0", "x", "10.3.0.130")
	n.expect(t, "what has ended is not listed", "10.3.0.130 held x/eth0 x")
	if got := n.residue(t)["leases"]; got != atOnce+1 {
		t.Errorf("%d leases, want %d", got, atOnce+1)
	}
}

func TestReservationEndsWhenReleasedOrAfterRetain(t *testing.T) {
	n := newNode(t, small+`, "sticky": "pod", "retain": "24h"`)
	for i, pod := range []string{"web-0", "web-1", "web-2"} {
		n.add(t, fmt.Sprintf("c%d/eth0", i), pod, fmt.Sprintf("10.3.0.%d", i+2))
	}
	for i := range 3 {
		n.del(t, fmt.Sprintf("c%d/eth0", i))
		n.later(time.Hour)
	}
	_, err := n.tryAdd(t, "c9/eth0", "web-9", "")
	n.expectError(t, "all reserved", err, 11, "relink-ipam: range set 0 (10.3.0.2-10.3.0.4) of network pods: no address is free: 0 held, 3 reserved, 0 in quarantine; relink ipam list says for whom")
	seen, err := n.store(t).Get(t.Context(), addr("10.3.0.3"))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.store(t).End(t.Context(), seen, lease.ByHand); err != nil {
		t.Fatal(err)
	}
	n.expect(t, "one released", "10.3.0.2 reserved c0/eth0 web-0", "10.3.0.4 reserved c2/eth0 web-2")
	n.add(t, "c9/eth0", "web-9", "10.3.0.3")
	n.later(21*time.Hour - time.Millisecond)
	n.expect(t, "before the first ends", "10.3.0.2 reserved c0/eth0 web-0", "10.3.0.3 held c9/eth0 web-9", "10.3.0.4 reserved c2/eth0 web-2")
	n.later(time.Millisecond)
	n.expect(t, "after", "10.3.0.3 held c9/eth0 web-9", "10.3.0.4 reserved c2/eth0 web-2")
	n.add(t, "c8/eth0", "web-8", "10.3.0.2")
}

func TestAddressInQuarantineIsGivenWhenNoOtherIsFree(t *testing.T) {
	n := newNode(t, small)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	n.add(t, "c2/eth0", "", "10.3.0.3")
	n.del(t, "c2/eth0")
	n.later(time.Second)
	n.del(t, "c1/eth0")
	n.add(t, "c3/eth0", "", "10.3.0.4")
	// The address that was released first is given first: by now it is most likely forgotten.
	n.add(t, "c4/eth0", "", "10.3.0.3")
	n.add(t, "c5/eth0", "", "10.3.0.2")
	_, err := n.tryAdd(t, "c6/eth0", "", "")
	n.expectError(t, "all held", err, 11, "relink-ipam: range set 0 (10.3.0.2-10.3.0.4) of network pods: no address is free: 3 held, 0 reserved, 0 in quarantine; relink ipam list says for whom")
}

// An address that another host uses is not given even if no other is free, because it would not work. The next ADD of
// the attachment gets another address.
func TestAddressOfAnotherHostIsNotGiven(t *testing.T) {
	n := newNode(t, small)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	n.add(t, "c2/eth0", "", "10.3.0.3")
	conflict := func(a string) error {
		_, err := n.begin(t, n.args("c3/eth0", "")).Conflict(t.Context(), addr(a), "02:00:00:00:00:01")
		return err
	}
	n.add(t, "c3/eth0", "", "10.3.0.4")
	n.expectError(t, "of another", conflict("10.3.0.3"), 5, "relink-ipam: eth0 of c3 on pods does not hold 10.3.0.3, which 02:00:00:00:00:01 has")
	if err := conflict("10.3.0.4"); err != nil {
		t.Fatal(err)
	}
	_, err := n.tryAdd(t, "c3/eth0", "", "")
	n.expectError(t, "no other is free", err, 11, "relink-ipam: range set 0 (10.3.0.2-10.3.0.4) of network pods: no address is free: 2 held, 0 reserved, 1 in quarantine; relink ipam list says for whom")
	n.ipam = small + `, "statusExhausted": true`
	n.expectError(t, "STATUS", n.status(t), 50, "range set 0 (10.3.0.2-10.3.0.4) of network pods: no address is free: 2 held, 0 reserved, 1 in quarantine; relink ipam list says for whom")
	n.del(t, "c1/eth0")
	n.add(t, "c3/eth0", "", "10.3.0.2")
	n.later(time.Hour)
	n.add(t, "c4/eth0", "", "10.3.0.4")
	if got, err := n.tryAdd(t, "c5/eth0", "", "10.3.0.9"); err == nil {
		t.Errorf("outside of the range: %s", got)
	}
}

// No other address can replace one that was asked for, or one that is the pod's own.
func TestConflictOfAnAddressThatWasMeantIsAnError(t *testing.T) {
	n := newNode(t, sticky)
	if _, err := n.tryAdd(t, "c1/eth0", "web-0", "10.3.0.9"); err != nil {
		t.Fatal(err)
	}
	_, err := n.begin(t, n.args("c1/eth0", "web-0")).Conflict(t.Context(), addr("10.3.0.9"), "02:00:00:00:00:01")
	n.expectError(t, "asked for", err, 11,
		"relink-ipam: 10.3.0.9 is in use on the network by 02:00:00:00:00:01, and no other address can take its place (requested): end that use")
	n.del(t, "c1/eth0")
	n.add(t, "c2/eth0", "web-0", "10.3.0.9")
	_, err = n.begin(t, n.args("c2/eth0", "web-0")).Conflict(t.Context(), addr("10.3.0.9"), "02:00:00:00:00:01")
	n.expectError(t, "reserved", err, 11,
		"relink-ipam: 10.3.0.9 is in use on the network by 02:00:00:00:00:01, and no other address can take its place (reserved for the owner): end that use")
	n.expect(t, "kept", "10.3.0.9 held c2/eth0 web-0")
}

// The host that answers for an address that was taken over is the pod's own earlier sandbox.
func TestConflictOfAnAddressThatWasTakenOverIsNone(t *testing.T) {
	n := newNode(t, sticky)
	n.add(t, "old/eth0", "web-0", "10.3.0.2")
	n.add(t, "new/eth0", "web-0", "10.3.0.2")
	exchanged, err := n.begin(t, n.args("new/eth0", "web-0")).Conflict(t.Context(), addr("10.3.0.2"), "02:00:00:00:00:01")
	if exchanged || err != nil {
		t.Errorf("exchanged %v, %v", exchanged, err)
	}
	n.expect(t, "kept", "10.3.0.2 held old/eth0+new/eth0 web-0")
}

// Another host has the requested address. Once the pod gives the address up, its quarantine remembers that: nobody gets
// the address, even if no other is free.
func TestRefusedConflictIsRememberedInQuarantine(t *testing.T) {
	n := newNode(t, `"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.2", "rangeEnd": "10.3.0.2", "quarantine": "0s"`)
	if _, err := n.tryAdd(t, "c1/eth0", "", "10.3.0.2"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.begin(t, n.args("c1/eth0", "")).Conflict(t.Context(), addr("10.3.0.2"), "02:00:00:00:00:01"); err == nil {
		t.Fatal("exchanged")
	}
	n.del(t, "c1/eth0")
	if got, err := n.tryAdd(t, "c2/eth0", "", ""); err == nil {
		t.Errorf("given: %s", got)
	}
	n.later(time.Hour)
	n.add(t, "c2/eth0", "", "10.3.0.2")
}

// A clock that is behind after a boot ends nothing too early, not even after it is set right.
func TestClockThatWasBehindEndsNothing(t *testing.T) {
	n := newNode(t, sticky+`, "retain": "72h"`)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	right := n.clock
	n.reboot(-30 * 24 * time.Hour)
	n.add(t, "c2/eth0", "web-1", "10.3.0.3")
	n.clock = right.Add(time.Hour)
	n.add(t, "c3/eth0", "web-0", "10.3.0.2")
}

// A clock that was years ahead for a moment ends nothing, and keeps nothing for years.
func TestClockThatJumpedAheadFreezesNothing(t *testing.T) {
	n := newNode(t, sticky+`, "retain": "72h"`)
	n.add(t, "c0/eth0", "web-0", "10.3.0.2")
	n.add(t, "c1/eth0", "web-1", "10.3.0.3")
	n.del(t, "c0/eth0")
	right := n.clock
	n.clock = right.AddDate(10, 0, 0)
	n.del(t, "c1/eth0")
	n.clock = right
	n.later(71 * time.Hour)
	n.expect(t, "within retain", "10.3.0.2 reserved c0/eth0 web-0", "10.3.0.3 reserved c1/eth0 web-1")
	n.later(2 * time.Hour)
	n.expect(t, "after it")
}

// Only a boot can carry on the wrong time. Then one verb sets it right.
func TestClockThatWasAheadAtABootIsReset(t *testing.T) {
	n := newNode(t, sticky+`, "retain": "72h"`)
	right := n.clock
	n.reboot(10 * 365 * 24 * time.Hour)
	n.add(t, "c0/eth0", "web-0", "10.3.0.2")
	n.reboot(0)
	n.clock = right
	n.add(t, "c1/eth0", "web-1", "10.3.0.3")
	n.del(t, "c1/eth0")
	ahead, err := n.store(t).ClockAhead(t.Context())
	if err != nil || ahead != 10*365*24*time.Hour {
		t.Errorf("ahead by %s, %v", ahead, err)
	}
	if _, err := n.store(t).ResetClock(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := n.store(t).Get(t.Context(), addr("10.3.0.3"))
	if want := right.Add(72 * time.Hour); err != nil || !l.Until.Equal(want) || l.ReleasedAt.After(right) {
		t.Errorf("reserved until %s, released at %s, want until %s: %v", l.Until, l.ReleasedAt, want, err)
	}
	n.later(73 * time.Hour)
	n.expect(t, "after retain")
}

// No sandbox outlives a boot. So the first ADD gives up what was held before, and STATUS already knows that this ADD
// would work.
func TestLeasesOfAnEarlierBootAreGivenUp(t *testing.T) {
	for name, test := range map[string]struct {
		ipam string
		full bool
		want []string
	}{
		"in quarantine": {small, false, []string{"10.3.0.2 held new/eth0 web-9", "10.3.0.3 quarantined c1/eth0 web-1", "10.3.0.4 quarantined c2/eth0 web-2"}},
		"free":          {small + `, "quarantine": "0s"`, false, []string{"10.3.0.2 held new/eth0 web-9"}},
		"reserved": {small + `, "sticky": "pod"`, true,
			[]string{"10.3.0.2 reserved c0/eth0 web-0", "10.3.0.3 reserved c1/eth0 web-1", "10.3.0.4 reserved c2/eth0 web-2"}},
	} {
		n := newNode(t, test.ipam+`, "statusExhausted": true`)
		for i := range 3 {
			n.add(t, fmt.Sprintf("c%d/eth0", i), fmt.Sprintf("web-%d", i), fmt.Sprintf("10.3.0.%d", i+2))
		}
		n.expectError(t, name+": STATUS before it", n.status(t), 50,
			"range set 0 (10.3.0.2-10.3.0.4) of network pods: no address is free: 3 held, 0 reserved, 0 in quarantine; relink ipam list says for whom")
		n.reboot(time.Minute)
		n.expectError(t, name+": STATUS", n.status(t), 0, "")
		_, err := n.tryAdd(t, "new/eth0", "web-9", "")
		if (err != nil) != test.full {
			t.Errorf("%s: ADD: %v", name, err)
		}
		n.expect(t, name, test.want...)
		if got, err := n.tryAdd(t, "back/eth0", "web-1", ""); test.full && (err != nil || got != "10.3.0.3") {
			t.Errorf("%s: the owner's ADD: %s, %v", name, got, err)
		}
	}
}

func TestReservationByHandSurvivesItsUse(t *testing.T) {
	n := newNode(t, `"subnet": "10.3.0.0/24"`)
	reserve := func(a, name string) error {
		_, err := n.store(t).Reserve(t.Context(), addr(a), pod(name), 0)
		return err
	}
	if err := reserve("10.3.0.9", "web-0"); err != nil {
		t.Fatal(err)
	}
	n.add(t, "other/eth0", "web-1", "10.3.0.2")
	for _, sandbox := range []string{"c1/eth0", "c2/eth0"} {
		n.add(t, sandbox, "web-0", "10.3.0.9")
		n.del(t, sandbox)
		n.later(time.Hour)
	}
	n.expect(t, "used twice", "10.3.0.2 held other/eth0 web-1", "10.3.0.9 reserved c2/eth0 web-0")
	n.expectError(t, "reserved for another", withCode(reserve("10.3.0.9", "web-1")), 11, "relink-ipam: 10.3.0.9 is not available: it is reserved for pod default/web-0")
	// An address that is held becomes reserved when it is given up.
	if err := reserve("10.3.0.2", "web-1"); err != nil {
		t.Fatal(err)
	}
	n.del(t, "other/eth0")
	n.expect(t, "both reserved", "10.3.0.2 reserved other/eth0 web-1", "10.3.0.9 reserved c2/eth0 web-0")
	// While the next sandbox starts, the earlier one still holds the address.
	n.add(t, "c3/eth0", "web-0", "10.3.0.9")
	n.add(t, "c4/eth0", "web-0", "10.3.0.9")
	n.expect(t, "both hold it", "10.3.0.2 reserved other/eth0 web-1", "10.3.0.9 held c3/eth0+c4/eth0 web-0")
	n.del(t, "c3/eth0")
	n.expect(t, "taken over", "10.3.0.2 reserved other/eth0 web-1", "10.3.0.9 held c4/eth0 web-0")
}

// A reservation that has ended does not matter to the address's next holder.
func TestEndedReservationByHandIsNotInherited(t *testing.T) {
	n := newNode(t, `"subnet": "10.3.0.0/24", "quarantine": "0s"`)
	for i := range 100 {
		if _, err := n.store(t).Reserve(t.Context(), addr(fmt.Sprintf("10.3.0.%d", i+2)), pod(fmt.Sprintf("web-%d", i)), time.Hour+time.Duration(i)*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	n.later(2 * time.Hour)
	// The ADD clears away 64 of them. This address is not among those.
	if got, err := n.tryAdd(t, "c1/eth0", "next", "10.3.0.90"); err != nil || got != "10.3.0.90" {
		t.Fatal(got, err)
	}
	if l, err := n.store(t).Get(t.Context(), addr("10.3.0.90")); err != nil || l.ByHand {
		t.Errorf("given: %+v, %v", l, err)
	}
	n.del(t, "c1/eth0")
	if _, err := n.store(t).Get(t.Context(), addr("10.3.0.90")); !errors.Is(err, lease.ErrNotLeased) {
		t.Errorf("after the DEL: %v", err)
	}
}

func TestRequestedAddressOfAnotherIsRefusedByName(t *testing.T) {
	n := newNode(t, sticky+`, "exclude": ["10.3.0.8"]`)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.add(t, "c2/eth0", "web-1", "10.3.0.3")
	n.del(t, "c2/eth0")
	for a, want := range map[string]printedError{
		"10.3.0.2": {11, "relink-ipam: each of the requested addresses is not available: 10.3.0.2 is held by eth0 of c1 on pods (pod default/web-0)"},
		"10.3.0.3": {11, "relink-ipam: each of the requested addresses is not available: 10.3.0.3 is reserved for pod default/web-1"},
		"10.3.0.1": {4, `invalid CNI_ARGS: "IP=10.3.0.1": cannot be given: it is the gateway`},
		"10.3.0.8": {4, `invalid CNI_ARGS: "IP=10.3.0.8": cannot be given: it is in exclude 10.3.0.8`},
		"10.9.0.1": {4, `invalid CNI_ARGS: "IP=10.9.0.1": is in none of the range sets`},
	} {
		_, err := n.tryAdd(t, "c9/eth0", "web-9", a)
		n.expectError(t, a, err, want.Code, want.Msg)
	}
	if got, err := n.tryAdd(t, "c9/eth0", "web-9", "10.3.0.44"); err != nil || got != "10.3.0.44" {
		t.Errorf("a free one: %s, %v", got, err)
	}
	n.expect(t, "after all", "10.3.0.2 held c1/eth0 web-0", "10.3.0.3 reserved c2/eth0 web-1", "10.3.0.44 held c9/eth0 web-9")
}

// A STATUS that fails makes the node NotReady, and that evicts its pods. So STATUS does not fail for a pool without a
// free address, unless the configuration asks for it.
func TestStatusOfAPoolThatIsExhausted(t *testing.T) {
	const ranges = `"ranges": [[{"subnet": "10.3.0.0/24"}], [{"subnet": "10.4.0.0/30"}], [{"subnet": "10.5.0.0/30"}]]`
	n := newNode(t, ranges)
	n.expectError(t, "before the first ADD", n.status(t), 0, "")
	n.add(t, "c1/eth0", "", "10.3.0.2 10.4.0.2 10.5.0.2")
	n.expectError(t, "not asked for", n.status(t), 0, "")
	n.ipam = ranges + `, "statusExhausted": true`
	full := func(set, what string) string {
		return "range set " + set + " of network pods: no address is free: " + what + "; relink ipam list says for whom"
	}
	const one, two = "1 (10.4.0.1-10.4.0.2)", "2 (10.5.0.1-10.5.0.2)"
	held := "1 held, 0 reserved, 0 in quarantine"
	n.expectError(t, "two are full", n.status(t), 50, full(one, held)+"; "+full(two, held))
	n.del(t, "c1/eth0")
	n.expectError(t, "what is in quarantine can be given", n.status(t), 0, "")
	if _, err := n.store(t).Reserve(t.Context(), addr("10.5.0.2"), pod("web-0"), 0); err != nil {
		t.Fatal(err)
	}
	n.expectError(t, "what is reserved waits for a pod that may come back", n.status(t), 0, "")
}

// Without this file an ADD fails. So STATUS fails with the same error.
func TestStatusWithoutTheFileOfResolvConf(t *testing.T) {
	n := newNode(t, `"subnet": "10.3.0.0/24", "resolvConf": "/nowhere/resolv.conf"`)
	n.expectError(t, "no file", n.status(t), 7, `invalid "ipam.resolvConf": "/nowhere/resolv.conf": must be a file that can be read: no such file or directory`)
	file := t.TempDir() + "/resolv.conf"
	if err := os.WriteFile(file, []byte("nameserver 10.3.0.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.ipam = `"subnet": "10.3.0.0/24", "resolvConf": "` + file + `"`
	n.expectError(t, "a file", n.status(t), 0, "")
}

func TestGCFreesWhatIsNotValidAndNothingWithoutAList(t *testing.T) {
	n := newNode(t, `"subnet": "10.3.0.0/24"`)
	if err := n.gc(t, "[]"); err != nil {
		t.Errorf("before the first ADD: %v", err)
	}
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.add(t, "c1/net1", "web-0", "10.3.0.3")
	n.ipam = sticky
	n.add(t, "c2/eth0", "web-1", "10.3.0.4")
	all := []string{"10.3.0.2 held c1/eth0 web-0", "10.3.0.3 held c1/net1 web-0", "10.3.0.4 held c2/eth0 web-1"}
	for list, want := range map[string]printedError{
		``:       {7, `invalid "cni.dev/valid-attachments": missing: must list the valid attachments; without the list every address is kept`},
		`{}`:     {7, `invalid "cni.dev/valid-attachments": {}: must be a list of attachments: everything is kept`},
		`[null]`: {7, `invalid "cni.dev/valid-attachments[0]": null: must have containerID and ifname: everything is kept`},
		`[{"containerID": "c2", "ifname": "eth0"}, {"containerID": "c1"}]`: {7, `invalid "cni.dev/valid-attachments[1]": {"containerID": "c1"}: must have containerID and ifname: everything is kept`},
	} {
		n.expectError(t, "GC with "+list, n.gc(t, list), want.Code, want.Msg)
		n.expect(t, "GC with "+list, all...)
	}
	if err := n.gc(t, `[{"containerID": "c1", "ifname": "net1"}, {"containerID": "gone", "ifname": "eth0"}]`); err != nil {
		t.Error(err)
	}
	n.expect(t, "one valid", "10.3.0.2 quarantined c1/eth0 web-0", "10.3.0.3 held c1/net1 web-0", "10.3.0.4 reserved c2/eth0 web-1")
	// CRI-O sends null for a network without pods.
	if err := n.gc(t, `null`); err != nil {
		t.Error(err)
	}
	n.expect(t, "none valid", "10.3.0.2 quarantined c1/eth0 web-0", "10.3.0.3 quarantined c1/net1 web-0", "10.3.0.4 reserved c2/eth0 web-1")
}

// If one set fails, the others give nothing, and their turn stays as it was.
func TestAddThatFailsChangesNothing(t *testing.T) {
	n := newNode(t, `"ranges": [[{"subnet": "10.3.0.0/24"}], [{"subnet": "10.4.0.0/30"}]]`)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2 10.4.0.2")
	before := n.residue(t)
	for _, sandbox := range []string{"c2/eth0", "c3/eth0"} {
		_, err := n.tryAdd(t, sandbox, "web-1", "")
		n.expectError(t, sandbox, err, types.ErrTryAgainLater, "relink-ipam: range set 1 (10.4.0.1-10.4.0.2) of network pods: no address is free: 1 held, 0 reserved, 0 in quarantine; relink ipam list says for whom")
	}
	if after := n.residue(t); !maps.Equal(before, after) {
		t.Errorf("left behind: %v, was %v", after, before)
	}
	n.del(t, "c1/eth0")
	n.add(t, "c4/eth0", "web-1", "10.3.0.3 10.4.0.2")
}
