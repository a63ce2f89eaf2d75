package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// truth is the node and its cluster as the test has made them. What relink believes is compared with it.
type truth struct {
	t  *testing.T
	mu sync.Mutex
	// cells are all sandboxes that ever were, by their container IDs.
	cells map[string]*cell
	// owners are all that ever were.
	owners map[attachment.Owner]*standing
}

// cell is a sandbox. Its fields below pod change under the lock of the truth.
type cell struct {
	id, netns string
	macvlan   bool
	of        attachment.Owner
	// lasts and shared are those of its owner.
	lasts, shared bool
	pod           attachment.Pod
	// alive says that its namespace is there. died is when it went.
	alive bool
	died  time.Time
	// told is the address that an ADD has returned, until a DEL begins.
	told netip.Addr
	// ending says that the pod does not need it any more.
	ending bool
	// runtime is what the container runtime tells: "", "ready" or "stopped".
	runtime string
}

// standing is what is true of an owner.
type standing struct {
	// lives says that the API has it, and that it needs its pod. since is when that changed.
	lives bool
	since time.Time
	// has are the addresses that its pods were told since then. An owner that lasts keeps them.
	has map[netip.Addr]bool
}

func newTruth(t *testing.T) *truth {
	return &truth{t: t, cells: map[string]*cell{}, owners: map[attachment.Owner]*standing{}}
}

func (w *truth) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// lives notes that the owner is there. It is called after the API has it.
func (w *truth) lives(o attachment.Owner) {
	w.locked(func() {
		if is := w.owners[o]; is == nil || !is.lives {
			w.owners[o] = &standing{lives: true, since: time.Now(), has: map[netip.Addr]bool{}}
		}
	})
}

// goes notes that the owner goes. It is called before the API hears of it.
func (w *truth) goes(o attachment.Owner) {
	w.locked(func() {
		if is := w.owners[o]; is != nil && is.lives {
			w.owners[o] = &standing{since: time.Now()}
		}
	})
}

// tell notes that an ADD has returned the address. Nobody else may have it, and the owner may have no other one.
func (w *truth) tell(b *cell, a netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, other := range w.cells {
		switch {
		case other == b || !other.alive || other.told != a:
		case other.of != b.of:
			w.t.Errorf("%s of %s is told %s, which %s of %s has", b.id, b.of, a, other.id, other.of)
		case b.shared && other.pod.UID != b.pod.UID:
			w.t.Errorf("%s of the pod %s is told %s, which its owner's pod %s has (%s)", b.id, b.pod, a, other.pod, other.id)
		case !other.ending:
			w.t.Errorf("%s of %s is told %s, which %s of the same owner has and needs", b.id, b.of, a, other.id)
		}
	}
	b.told = a
	is := w.owners[b.of]
	if !b.lasts || is == nil || !is.lives {
		return
	}
	if !b.shared && len(is.has) > 0 && !is.has[a] {
		w.t.Errorf("%s of %s is told %s, and its owner has %v", b.id, b.of, a, is.has)
	}
	is.has[a] = true
}

// holds is what must be so in the store of leases.
type holds struct {
	address netip.Addr
	of      attachment.Owner
	// since is that of the owner. by is nil for what waits for it.
	since time.Time
	by    *cell
}

// expected is what the store must have now.
func (w *truth) expected() (all []holds) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.cells {
		if b.alive && b.told.IsValid() {
			all = append(all, holds{address: b.told, of: b.of, by: b})
		}
	}
	for o, is := range w.owners {
		for a := range is.has {
			all = append(all, holds{address: a, of: o, since: is.since})
		}
	}
	return all
}

// still says whether it is expected yet.
func (w *truth) still(h holds) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.by != nil {
		return h.by.alive && h.by.told == h.address
	}
	is := w.owners[h.of]
	return is.lives && is.since.Equal(h.since)
}

// compare compares the store with what is expected.
func (w *truth) compare(s *lease.Store) {
	for _, h := range w.expected() {
		l, err := s.Get(w.t.Context(), h.address)
		if errors.Is(err, lease.ErrBusy) {
			continue // Many want the store at the same time.
		}
		problem := ""
		switch {
		case h.by != nil && (err != nil || !l.HeldBy(attachment.Key{Network: s.Network(), ContainerID: h.by.id, IfName: ifName})):
			problem = fmt.Sprintf("%s of %s was told %s and does not hold it", h.by.id, h.of, h.address)
		case err != nil || l.Owner != h.of || l.State != lease.Held && l.State != lease.Reserved:
			problem = fmt.Sprintf("%s lives, and does not have %s any more", h.of, h.address)
		}
		if problem != "" && w.still(h) {
			events, _ := s.History(w.t.Context(), h.address)
			w.t.Errorf("%s: %+v, %v\n%+v\n%#v is expected, not %#v", problem, l, err, events, h.of, l.Owner)
		}
	}
	if err := s.Verify(w.t.Context()); err != nil && !errors.Is(err, lease.ErrNotLeased) && !errors.Is(err, lease.ErrBusy) {
		w.t.Error(err)
	}
}

// dead returns an error if the sandbox must be kept now, or was not dead for the time of grace.
func (w *truth) dead(id string, grace time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch b := w.cells[id]; {
	case b == nil:
		return fmt.Errorf("%s was never there", id)
	case b.alive:
		return fmt.Errorf("%s is alive", id)
	case b.runtime != "":
		return fmt.Errorf("the runtime owes a DEL for %s", id)
	case time.Since(b.died) < grace:
		return fmt.Errorf("%s died %s ago", id, time.Since(b.died))
	}
	return nil
}

// unneeded returns an error if the owner has lived since that time.
func (w *truth) unneeded(o attachment.Owner, since time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if is := w.owners[o]; is == nil || is.lives && is.since.Before(since) {
		return fmt.Errorf("%s lives", o)
	}
	return nil
}

// known returns the sandboxes that the runtime has, as they are now.
func (w *truth) known() (all []cell) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.cells {
		if b.runtime != "" {
			all = append(all, *b)
		}
	}
	return all
}

// living are the container IDs of the sandboxes that are there.
func (w *truth) living() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.cells {
		if b.alive {
			ids = append(ids, b.id)
		}
	}
	slices.Sort(ids)
	return ids
}
