package lease

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
)

// tenAddresses returns a range of ten addresses.
func tenAddresses(net int) RangeSet {
	base := fmt.Sprintf("10.%d.0.", net)
	return RangeSet{{Span: span(base+"10", base+"19"), Subnet: netip.MustParsePrefix(base + "0/24"), Gateway: addr(base + "1")}}
}

func (n *node) known(t *testing.T) (sets []string) {
	t.Helper()
	_, known, _ := n.all(t)
	for _, s := range known.Sets {
		sets = append(sets, s.String())
	}
	return sets
}

// The store knows the ranges that the last ADD asked for.
func TestKnownRanges(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	expect := func(when string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, n.known(t)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	for i, sets := range [][]RangeSet{{tenAddresses(1)}, {tenAddresses(2)}, {tenAddresses(1)}, {tenAddresses(2), tenAddresses(3)}} {
		n.sets = sets
		if _, err := n.try(t, fmt.Sprintf("c%d/eth0", i), "web-0"); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, s := range sets {
			want = append(want, s.String())
		}
		expect(fmt.Sprint("ADD ", i), want...)
	}
	if _, err := n.try(t, "x/eth0", "", "10.2.0.1"); err == nil {
		t.Error("the gateway was given")
	}
	n.sets = []RangeSet{tenAddresses(4)}
	if _, err := n.try(t, "x/eth0", "", "10.4.0.1"); err == nil {
		t.Error("another gateway was given")
	}
	expect("after ADDs that failed", "10.2.0.10-10.2.0.19", "10.3.0.10-10.3.0.19")
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

// What a newer relink has written of ranges stays while ADDs ask for the same.
func TestRangesOfANewerRelinkStayAsTheyAreStored(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	var want string
	edit(t, n.path(), func(tx *bolt.Tx) error {
		meta := tx.Bucket([]byte(bucketMeta))
		want = strings.Replace(string(meta.Get([]byte(keyRequested))), `{"sets"`, `{"future":1,"sets"`, 1)
		return meta.Put([]byte(keyRequested), []byte(want))
	})
	n.add(t, "c2/eth0", "web-1", "10.3.0.3")
	if got := contents(t, n.path())[bucketMeta][`"ranges"`]; got != readable([]byte(want)) {
		t.Errorf("the store has %s, want %s", got, want)
	}
}
