package lease

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
)

// tenAddresses returns a range of ten addresses.
func tenAddresses(net int) RangeSet {
	base := fmt.Sprintf("10.%d.0.", net)
	return RangeSet{{Span: span(base+"10", base+"19"), Subnet: netip.MustParsePrefix(base + "0/24"), Gateway: addr(base + "1")}}
}

func (n *node) known(t *testing.T) []string {
	t.Helper()
	_, known, _ := n.all(t)
	var all []string
	for _, k := range known {
		var sets []string
		for _, s := range k.Sets {
			if len(s) == 0 {
				sets = append(sets, "-") // Now ADDs of another set ask for its addresses.
				continue
			}
			sets = append(sets, s.String())
		}
		all = append(all, strings.TrimSpace(fmt.Sprint(strings.Join(sets, " "), " ", k.Policy.Retain)))
	}
	return all
}

// The store knows the ranges that ADDs asked for, those of the last ADD first. It keeps at most eight, and only the
// newest ones for the same addresses.
func TestKnownRanges(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	asks := 0
	ask := func(policy Policy, sets ...RangeSet) {
		t.Helper()
		n.sets, n.policy = sets, policy
		asks++
		if _, err := n.try(t, fmt.Sprintf("c%d/eth0", asks), "web-0"); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, n.known(t)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	ask(minute, tenAddresses(1))
	expect("one", "10.1.0.10-10.1.0.19 0s")
	ask(minute, tenAddresses(2))
	expect("another", "10.2.0.10-10.2.0.19 0s", "10.1.0.10-10.1.0.19 0s")
	ask(minute, tenAddresses(1))
	expect("the first again", "10.1.0.10-10.1.0.19 0s", "10.2.0.10-10.2.0.19 0s")
	ask(stickyFor(time.Hour), tenAddresses(1))
	expect("another policy", "10.1.0.10-10.1.0.19 1h0m0s", "10.2.0.10-10.2.0.19 0s")
	ask(minute, tenAddresses(2), tenAddresses(3))
	expect("two sets, one of them known", "10.2.0.10-10.2.0.19 10.3.0.10-10.3.0.19 0s", "10.1.0.10-10.1.0.19 1h0m0s")
	wider := tenAddresses(3)
	wider[0].Span = span("10.3.0.19", "10.3.0.40")
	ask(minute, wider)
	expect("one address of one of the two sets", "10.3.0.19-10.3.0.40 0s", "10.2.0.10-10.2.0.19 - 0s", "10.1.0.10-10.1.0.19 1h0m0s")
	beside := tenAddresses(3)
	beside[0].Span = span("10.3.0.10", "10.3.0.18")
	ask(minute, beside)
	expect("beside", "10.3.0.10-10.3.0.18 0s", "10.3.0.19-10.3.0.40 0s", "10.2.0.10-10.2.0.19 - 0s", "10.1.0.10-10.1.0.19 1h0m0s")
	for i := 4; i < 9; i++ {
		ask(minute, tenAddresses(i))
	}
	eight := []string{
		"10.8.0.10-10.8.0.19 0s", "10.7.0.10-10.7.0.19 0s", "10.6.0.10-10.6.0.19 0s", "10.5.0.10-10.5.0.19 0s", "10.4.0.10-10.4.0.19 0s",
		"10.3.0.10-10.3.0.18 0s", "10.3.0.19-10.3.0.40 0s", "10.2.0.10-10.2.0.19 - 0s",
	}
	expect("eight", eight...)
	ask(minute, tenAddresses(9))
	expect("nine", append([]string{"10.9.0.10-10.9.0.19 0s"}, eight[:7]...)...)
	all := tenAddresses(1)
	all[0].Span = span("10.0.0.1", "10.255.255.254")
	all[0].Gateway = addr("10.255.255.254")
	ask(minute, all)
	expect("one for all", "10.0.0.1-10.255.255.254 0s")
	if _, err := n.try(t, "x/eth0", "", "10.255.255.254"); err == nil {
		t.Error("the gateway was given")
	}
	expect("after an ADD that failed", "10.0.0.1-10.255.255.254 0s")
}

// After the first ADD, an operator cannot reserve an address that no ADD gives.
func TestReserveRefusesWhatNoAddGives(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.sets[0][0].Excluded = []Span{span("10.3.0.5", "10.3.0.6")}
	reserve := func(a string) error {
		_, err := n.store(t).Reserve(t.Context(), addr(a), pod("web-0"), 0)
		return err
	}
	must(t, reserve("10.3.0.6"))
	must(t, reserve("192.0.2.1"))
	n.add(t, "c1/eth0", "", "10.3.0.2")
	for name, test := range map[string]struct{ address, why string }{
		"the gateway":  {"10.3.0.1", "its last ADDs gave addresses of 10.3.0.2-10.3.0.20; a new range is known after its first ADD"},
		"excluded":     {"10.3.0.5", "it is in exclude 10.3.0.5-10.3.0.6"},
		"outside":      {"10.3.0.21", "its last ADDs gave addresses of 10.3.0.2-10.3.0.20; a new range is known after its first ADD"},
		"other family": {"2001:db8::2", "its last ADDs gave addresses of 10.3.0.2-10.3.0.20; a new range is known after its first ADD"},
	} {
		n.refused(t, name, reserve(test.address), ErrNotGiven, test.address+" is never given in network pods: "+test.why)
	}
	n.expect(t, "nothing of it", "10.3.0.2 held c1/eth0", "10.3.0.6 reserved web-0", "192.0.2.1 reserved web-0")
	n.sets = append(n.sets, RangeSet{{Span: span("10.4.0.1", "10.4.0.9"), Subnet: netip.MustParsePrefix("10.4.0.0/24"), Gateway: addr("10.4.0.5")}})
	n.add(t, "c1/eth0", "", "10.3.0.2 10.4.0.1")
	must(t, reserve("10.4.0.2"))
	n.refused(t, "the gateway in its range", reserve("10.4.0.5"), ErrNotGiven, "10.4.0.5 is never given in network pods: it is the gateway")
	n.refused(t, "outside of two", reserve("10.5.0.1"), ErrNotGiven,
		"10.5.0.1 is never given in network pods: its last ADDs gave addresses of 10.3.0.2-10.3.0.20, 10.4.0.1-10.4.0.9; a new range is known after its first ADD")
	// The excluded address is free now, and another one is excluded.
	n.sets[0] = subnet("10.3.0.2", "10.3.0.20")
	n.add(t, "c1/eth0", "", "10.3.0.2 10.4.0.1")
	must(t, reserve("10.3.0.5"))
}

// What a newer relink has written of ranges stays, also within them, while ADDs ask for other ranges.
func TestRangesOfANewerRelinkStayAsTheyAreStored(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.sets = []RangeSet{tenAddresses(1)}
	n.add(t, "c1/eth0", "web-0", "10.1.0.10")
	var want string
	edit(t, n.path(), func(tx *bolt.Tx) error {
		ranges := tx.Bucket([]byte(bucketRanges))
		want = strings.Replace(string(ranges.Get(requestedRangesKey(0))), `"first"`, `"future":1,"first"`, 1)
		return ranges.Put(requestedRangesKey(0), []byte(want))
	})
	for i := range 3 {
		n.sets = []RangeSet{tenAddresses(2 + i)}
		n.add(t, fmt.Sprintf("c%d/eth0", 2+i), "web-1", fmt.Sprintf("10.%d.0.10", 2+i))
	}
	if got := slices.Collect(maps.Values(contents(t, n.path())[bucketRanges])); !slices.Contains(got, readable([]byte(want))) {
		t.Errorf("the store has %q, want %s among them", got, want)
	}
}
