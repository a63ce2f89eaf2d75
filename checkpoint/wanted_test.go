package checkpoint

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/netstate"
)

var anySlot = netstate.Slot{Destination: netip.MustParsePrefix("0.0.0.0/0"), Table: 254}

// slot has the routes of one slot. Each is written as its device and the last number of its gateway.
type slot []string

// routesOf returns the routes from the view of the interface.
func (s slot) routesOf(name string) []netstate.Place {
	var places []netstate.Place
	for _, route := range s {
		var device string
		var number byte
		if _, err := fmt.Sscanf(route, "%4s %d", &device, &number); err != nil {
			panic(err)
		}
		p := netstate.Place{Device: device, Gateway: netip.AddrFrom4([4]byte{10, 0, 0, number})}
		if device == name {
			p.Device = ""
		}
		places = append(places, p)
	}
	return places
}

func (s slot) only(names ...string) slot {
	return slices.DeleteFunc(slices.Clone(s), func(route string) bool { return !slices.Contains(names, route[:4]) })
}

func (s slot) moved(front, back []int) slot {
	var first, middle, last slot
	for _, i := range front {
		first = append(first, s[i])
	}
	for _, i := range back {
		last = append(last, s[i])
	}
	for i, route := range s {
		if !slices.Contains(front, i) && !slices.Contains(back, i) {
			middle = append(middle, route)
		}
	}
	return slices.Concat(first, middle, last)
}

// captured saves a checkpoint of the interface that was taken while the slot was like this.
func (s slot) captured(t *rapid.T, store *Store, name string, at int) {
	r := record("pod", name)
	r.CapturedAt = time.Unix(int64(at), 0)
	if places := s.routesOf(name); len(places) > 1 {
		r.Interface.RouteOrder = []netstate.Order{{Slot: anySlot, Routes: places}}
	}
	if err := store.Save(r); err != nil {
		t.Fatal(err)
	}
}

// order returns the order that the interface's checkpoint wants in the slot.
func (s slot) order(t *rapid.T, store *Store, name string) netstate.Order {
	r, err := store.Load("pod", name)
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := store.Wanted(r, func(string) (bool, error) { return true, nil })
	if err != nil {
		t.Fatal(err)
	}
	if len(wanted.RouteOrder) == 0 {
		return netstate.Order{}
	}
	return wanted.RouteOrder[0]
}

// The order in the newest checkpoint comes back. It does not matter which checkpoint that is, what the older ones say,
// which interfaces are lost, and in which order they come back. In the end all checkpoints agree.
func TestTheNewestCheckpointsOrderComesBack(t *testing.T) {
	dir := t.TempDir()
	count := 0
	rapid.Check(t, func(t *rapid.T) {
		count++
		store := OpenStore(fmt.Sprintf("%s/%d", dir, count))
		names := []string{"eth0", "net1", "net2", "net3"}[:rapid.IntRange(2, 4).Draw(t, "interfaces")]
		var all slot
		for _, name := range names {
			for number := range rapid.IntRange(1, 2).Draw(t, "routes") {
				all = append(all, fmt.Sprintf("%s %d", name, number))
			}
		}
		if rapid.Bool().Draw(t, "one without checkpoint") { // There is at most one such route. The others can be arranged around one, but not around two.
			all = append(all, "veth 1")
		}
		captures := rapid.Permutation(names).Draw(t, "captures")
		var newest slot
		for at, name := range captures {
			newest = rapid.Permutation(all).Draw(t, "order")
			seen := newest
			if at < len(captures)-1 && rapid.Bool().Draw(t, "before the others came") {
				seen = seen.only(append(captures[:at+1:at+1], "veth")...)
			}
			seen.captured(t, store, name, at)
		}
		lost := rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "lost")
		now := slices.DeleteFunc(slices.Clone(newest), func(route string) bool { return slices.Contains(lost, route[:4]) })
		for _, name := range lost {
			if own := newest.only(name); now.order(t, store, name).First() {
				now = slices.Concat(own, now)
			} else {
				now = slices.Concat(now, own)
			}
			now = ordered(t, store, now, name)
		}
		for _, name := range rapid.Permutation(names).Draw(t, "looked at") {
			now = ordered(t, store, now, name)
		}
		if !slices.Equal(now, newest) {
			t.Fatalf("%v, not %v, after the loss of %v", now, newest, lost)
		}
	})
}

func ordered(t *rapid.T, store *Store, now slot, name string) slot {
	order := now.order(t, store, name)
	front, back := order.Moves(now.routesOf(name), true)
	for _, i := range slices.Concat(front, back) {
		if now[i][:4] == "veth" {
			t.Fatalf("of %v, %s is moved, which is nobody's, to have %s", now, now[i], order)
		}
	}
	return now.moved(front, back)
}

// The newest checkpoint does not know this interface. The other checkpoints know its place.
func TestAnInterfaceThatWasLostAtTheNewestCaptureHasItsPlace(t *testing.T) {
	store := OpenStore(t.TempDir())
	rapid.Check(t, func(t *rapid.T) {
		all := slot{"eth0 1", "net1 1", "net2 1"}
		all = rapid.Permutation(all).Draw(t, "order")
		captures := rapid.Permutation([]string{"eth0", "net1", "net2"}).Draw(t, "captures")
		lost, newest := captures[0], captures[2]
		all.captured(t, store, lost, 0)
		all.captured(t, store, captures[1], 1)
		all.only(captures[1], newest).captured(t, store, newest, 2)
		for _, name := range captures {
			back := slices.Concat(all.only(lost), all.only(captures[1], newest))
			if now := ordered(t, store, back, name); !slices.Equal(now, all) {
				t.Fatalf("%s makes it %v, not %v", name, now, all)
			}
		}
	})
}
