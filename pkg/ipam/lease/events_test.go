package lease

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/attachment"
)

// eventLines returns the history of an address in words: when, what, who, why, and the state afterwards.
func (n *node) eventLines(t *testing.T, a string) []string {
	t.Helper()
	events, err := n.store(t).History(t.Context(), addr(a))
	must(t, err)
	var all []string
	for _, e := range events {
		who := e.ContainerID
		if e.IfName != "" {
			who += "/" + e.IfName
		}
		words := []string{e.Time.Format("15:04"), string(e.Type), who, e.PodUID, e.Owner.Name, "(" + e.Reason + ")", string(e.StateAfter)}
		all = append(all, strings.Join(strings.Fields(strings.Join(words, " ")), " "))
	}
	return all
}

// The history of an address has everything that happened to it, with the holder and the reason.
func TestHistoryTellsWhatHappened(t *testing.T) {
	n := newNode(t, "10.3.0.20", stickyFor(72*time.Hour))
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.later(time.Minute)
	n.add(t, "c2/eth0", "web-0", "10.3.0.2")
	n.later(time.Minute)
	n.add(t, "c2/eth0", "web-0", "10.3.0.2") // A repeated ADD changes nothing.
	n.settled(t, "c2/eth0")
	n.later(time.Minute)
	n.reserve(t, "10.3.0.2", "web-0", time.Hour)
	n.del(t, "c2/eth0")
	n.del(t, "c2/eth0") // Nor does a repeated DEL.
	n.later(73 * time.Hour)
	n.add(t, "c3/eth0", "web-1", "10.3.0.3")
	n.addWanted(t, "c4/eth0", "web-2", "10.3.0.2")
	err := n.store(t).ReleaseByHand(t.Context(), n.get(t, "10.3.0.2"))
	must(t, err)
	want := []string{
		"05:06 given c1/eth0 web-0-uid web-0 (next in turn) held",
		"05:07 given c2/eth0 web-0-uid web-0 (taken over from the owner's sandbox before) held",
		"05:08 given up c1/eth0 web-0-uid web-0 (its sandbox is gone, and the owner's next one is attached) held",
		"05:09 reserved by hand web-0 () held",
		"05:09 given up c2/eth0 web-0-uid web-0 (released) reserved",
		"06:09 ended web-0 (reserved for pod default/web-0)",
		"06:09 given c4/eth0 web-2-uid web-2 (requested) held",
		"06:09 released by hand c4/eth0 web-2-uid web-2 (by hand) quarantined",
	}
	if diff := cmp.Diff(want, n.eventLines(t, "10.3.0.2")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := n.eventLines(t, "10.3.0.3"); len(got) != 1 {
		t.Errorf("of the next address: %q", got)
	}
	if got := n.eventLines(t, "10.3.0.4"); len(got) != 0 {
		t.Errorf("of one that was never given: %q", got)
	}
}

func TestHistoryTellsOfBootsConflictsAndWhatIsHadInstead(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.del(t, "c1/eth0")
	n.addWanted(t, "c2/eth0", "web-0", "10.3.0.9")
	n.policy = minute
	n.add(t, "c3/eth0", "", "10.3.0.10")
	_, err := n.store(t).Conflict(t.Context(), n.key("c3/eth0"), addr("10.3.0.10"), "02:00:00:00:00:01")
	must(t, err)
	n.reboot("boot-2", 10*time.Second)
	n.add(t, "c4/eth0", "", "10.3.0.11")
	for a, want := range map[string]string{
		"10.3.0.2":  "05:06 ended web-0 (the owner has 10.3.0.9 instead) quarantined",
		"10.3.0.9":  "05:06 given up c2/eth0 web-0-uid web-0 (held in an earlier boot) reserved",
		"10.3.0.10": "05:06 in conflict c3/eth0 (in use by 02:00:00:00:00:01) quarantined",
	} {
		got := n.eventLines(t, a)
		if diff := cmp.Diff(want, got[len(got)-1]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", a, diff)
		}
	}
}

// numbers returns the first and the last number of the events, and the count of events.
func (n *node) numbers(t *testing.T) (first, last uint64, count int) {
	t.Helper()
	must(t, n.store(t).view(t.Context(), func(l *leaseTx) error {
		return l.events.ForEach(func(k, _ []byte) error {
			number := binary.BigEndian.Uint64(k)
			if count == 0 {
				first = number
			}
			if count > 0 && number != last+1 {
				t.Errorf("event %d comes after %d", number, last)
			}
			last = number
			count++
			return nil
		})
	}))
	return first, last, count
}

// The number of events is limited, so a store stays small. The oldest ones are forgotten first.
func TestEventsAreBounded(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	n.del(t, "c1/eth0")
	// This is one less than the limit.
	must(t, n.store(t).change(t.Context(), func(l *leaseTx) error {
		for i := range maxEvents + moreEvents - 3 {
			l.addEvent(Event{Type: Given, Address: addr("10.3.0.9"), Reason: fmt.Sprint(i)})
		}
		return nil
	}))
	expect := func(what string, wantFirst, wantLast uint64) {
		t.Helper()
		first, last, count := n.numbers(t)
		if first != wantFirst || last != wantLast || count != int(last-first+1) {
			t.Errorf("%s: %d events from %d to %d, want %d to %d", what, count, first, last, wantFirst, wantLast)
		}
	}
	expect("before the last of them", 1, maxEvents+moreEvents-1)
	n.add(t, "c2/eth0", "", "10.3.0.3")
	expect("as many as there may be", 1, maxEvents+moreEvents)
	if got := n.eventLines(t, "10.3.0.2"); len(got) != 2 {
		t.Errorf("of the oldest: %q", got)
	}
	n.add(t, "c3/eth0", "", "10.3.0.4")
	expect("one more", moreEvents+2, maxEvents+moreEvents+1)
	if got := n.eventLines(t, "10.3.0.2"); len(got) != 0 {
		t.Errorf("of the oldest: %q", got)
	}
	if got := n.eventLines(t, "10.3.0.4"); len(got) != 1 {
		t.Errorf("of the newest: %q", got)
	}
	n.expectVerified(t)
}

// One change can make more events than are kept: a boot gives up all held addresses.
func TestMoreEventsInOneChangeThanAreKept(t *testing.T) {
	const many = maxEvents + 2*moreEvents + 77
	n := newNode(t, "10.3.0.20", minute)
	var all []Lease
	for i, a := 0, addr("10.4.0.0"); i < many; i, a = i+1, a.Next() {
		all = append(all, Lease{Address: a, State: Held, Holders: []Holder{{
			ContainerID: fmt.Sprint("c", i), IfName: "eth0", Policy: minute, Namespace: attachment.Namespace{BootID: n.boot},
		}}})
	}
	n.takeIn(t, "host-local", all...)
	if _, _, count := n.numbers(t); count > maxEvents+moreEvents || count < maxEvents {
		t.Errorf("%d events after %d were taken in", count, many)
	}
	if got := n.eventLines(t, all[many-1].Address.String()); len(got) != 1 {
		t.Errorf("of the last one: %q", got)
	}
	n.reboot("boot-2", time.Second)
	n.add(t, "new/eth0", "", "10.3.0.2")
	first, last, count := n.numbers(t)
	if count > maxEvents+moreEvents || count < maxEvents {
		t.Errorf("%d events, %d to %d", count, first, last)
	}
	if got := n.eventLines(t, "10.3.0.2"); len(got) != 1 {
		t.Errorf("of the ADD: %q", got)
	}
	got := n.eventLines(t, all[many-1].Address.String())
	if len(got) != 1 || !strings.Contains(got[0], "held in an earlier boot") {
		t.Errorf("of the last that the boot gave up: %q", got)
	}
	n.expectVerified(t)
}

// A change that failed leaves no events.
func TestChangeThatFailsTellsNothing(t *testing.T) {
	n := newNode(t, "10.3.0.2", minute)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	n.sets = append(n.sets, RangeSet{{Span: span("10.4.0.2", "10.4.0.9"), Gateway: addr("10.4.0.1")}})
	n.sets[0], n.sets[1] = n.sets[1], n.sets[0]
	if got, err := n.try(t, "c2/eth0", ""); err == nil {
		t.Fatalf("given %s", got)
	}
	if got := n.eventLines(t, "10.4.0.2"); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

func TestDamagedEventIsAnError(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	edit(t, n.path(), func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucketEvents)).Put(eventKey(1), []byte("{")) })
	_, err := n.store(t).History(t.Context(), addr("10.3.0.2"))
	n.refused(t, "history", err, ErrDamaged, "store DIR/pods.db: event: not usable: jsontext: unexpected EOF after offset 1")
}

// A loop over the numbers of a damaged file could take years, with the file locked. The events that cannot be go with the oldest.
func TestEventNumbersThatCannotBe(t *testing.T) {
	for name, damage := range map[string]func(b *bolt.Bucket) error{
		"the last number is too large":        func(b *bolt.Bucket) error { return b.SetSequence(1 << 60) },
		"the last number is the greatest one": func(b *bolt.Bucket) error { return b.SetSequence(1<<64 - 1) },
		"an event is beyond the last number":  func(b *bolt.Bucket) error { return b.Put(eventKey(1<<60), encode(&Event{})) },
		"a number is cut short":               func(b *bolt.Bucket) error { return b.Put([]byte{0}, encode(&Event{})) },
	} {
		n := newNode(t, "10.3.0.9", minute)
		n.add(t, "c1/eth0", "", "10.3.0.2")
		n.add(t, "c2/eth0", "", "10.3.0.3")
		db, err := bolt.Open(n.store(t).path, 0o600, nil)
		must(t, err)
		must(t, db.Update(func(tx *bolt.Tx) error { return damage(tx.Bucket([]byte(bucketEvents))) }))
		must(t, db.Close())
		began := time.Now()
		must(t, n.store(t).Release(t.Context(), n.key("c1/eth0"), Policy{}))
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: it took %s", name, took)
		}
		n.expect(t, name, "10.3.0.2 quarantined c1/eth0", "10.3.0.3 held c2/eth0")
	}
}
