package cluster

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// leavesNothing ends all pods and owners, and one node for ever. Then nothing is left of the history: no block has a node that is gone, or a
// request, no claim is there, and no recovery. Another node can give each address of the pool once, and all are proven then.
func (w *storm) leavesNothing() {
	w.t.Helper()
	dead, live := w.nodes[2], w.nodes[:2]
	if w.left(live) == "" {
		w.t.Error("nothing is there that could be left: this shows nothing")
	}
	for _, b := range w.nodes {
		b.api.set(0, false)
		b.api.live()
	}
	dead.powerOff()
	w.api.taint(w.t, w.users, dead.name, true)
	w.await("the last fence", func() string { return w.fenceLeft(dead) })
	w.users["admin"].must(w.t, http.MethodDelete, "/api/v1/nodes/"+dead.name, m{}, nil)
	w.api.delete(w.t, w.set)
	for _, b := range live {
		b.endAll()
	}
	w.await("nothing to be left", func() string {
		for _, b := range live {
			b.endReservations(w)
		}
		return w.left(live)
	})
	w.givesAll(live[0], live[1])
	w.users["admin"].must(w.t, http.MethodPost, "/api/v1/nodes", m{"metadata": m{"name": dead.name}}, nil)
}

// await has all agents and the controller look until nothing is left.
func (w *storm) await(what string, left func() string) {
	w.t.Helper()
	var last string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		for _, b := range w.nodes {
			if !b.off {
				b.Reconcile(w.t.Context())
			}
		}
		if err := w.keep.Reconcile(w.t.Context()); err != nil {
			w.t.Logf("the controller: %v", err)
		}
		if last = left(); last == "" {
			return
		}
		if time.Now().After(deadline) {
			logs := ""
			for _, b := range w.nodes {
				text := b.log.String()
				logs += b.name + ":\n" + text[max(0, len(text)-3000):]
			}
			w.t.Fatalf("waited in vain for %s:\n%s\n%s", what, last, logs)
		}
	}
}

// fenceLeft says what the dead node still has.
func (w *storm) fenceLeft(dead *busy) string {
	for _, b := range w.api.blocksNow(w.t, w.users) {
		for _, h := range b.Status.Holders {
			if h.Node == dead.name && h.Fenced == "" {
				return fmt.Sprintf("%s has %+v", b.Metadata.Name, h)
			}
		}
	}
	return ""
}

// endReservations ends what waits for owners that are gone, as relink gc does.
func (b *busy) endReservations(w *storm) {
	w.t.Helper()
	for _, l := range b.leased(w.t) {
		if l.State == lease.Reserved {
			_ = b.store.End(w.t.Context(), l, "the owner is gone") // It can have changed meanwhile.
		}
	}
}

// left says what is left of the history, by the API and by the stores.
func (w *storm) left(live []*busy) string {
	w.t.Helper()
	var all []string
	found := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, b := range w.api.blocksNow(w.t, w.users) {
		for _, h := range b.Status.Holders {
			if h.Fenced != "" || !slices.ContainsFunc(live, func(m *busy) bool { return h.Node == m.name && h.Store == m.storeID(w.t) }) {
				found("%s has the holder %+v", b.Metadata.Name, h)
			}
		}
		if len(b.Status.Want) > 0 || strings.ContainsRune(b.Status.Addresses, pool.Claimed) {
			found("%s is %s, and somebody wants %+v", b.Metadata.Name, b.Status.Addresses, b.Status.Want)
		}
	}
	var list struct{ Items []pool.Claim }
	w.users["admin"].must(w.t, http.MethodGet, claims, nil, &list)
	for _, c := range list.Items {
		found("the claim %s: %+v", c.Metadata.Name, c.Status)
	}
	if r := w.api.recovery(w.t, w.users); r.Message != "" {
		found("the recovery %+v", r)
	}
	for _, b := range live {
		for a, l := range b.leased(w.t) {
			found("%s has a lease of %s: %s", b.name, a, l.Describe())
		}
	}
	return strings.Join(all, "\n")
}

// givesAll has one node give all 29 addresses of the pool. The other one runs, and hands over. What was a dead node's is proven by the pods
// that have it.
func (w *storm) givesAll(one, other *busy) {
	w.t.Helper()
	has := map[netip.Addr]string{}
	w.await("all addresses to be given", func() string {
		one.drain(w.t, has)
		if len(has) < 29 {
			return fmt.Sprintf("%d of 29 addresses were given, and %s has %d", len(has), other.name, len(other.granted(w.t)))
		}
		return ""
	})
	one.clock.age(6 * time.Minute) // A runtime has given up an ADD by then.
	w.await("all addresses to be proven", func() string {
		var all []string
		for _, b := range w.api.blocksNow(w.t, w.users) {
			if len(b.Status.Unproven) > 0 {
				all = append(all, fmt.Sprintf("%s has unproven %v", b.Metadata.Name, b.Status.Unproven))
			}
		}
		return strings.Join(all, "\n")
	})
	if more, err := one.quickly(w.t, one.request(lease.Policy{}, "")); err == nil {
		w.t.Errorf("%s is given beside all 29 addresses", more.address)
	}
}

// age lets time pass on the node.
func (c *nodeClock) age(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.day, c.up = c.day+d, c.up+d
}
