package cluster

import (
	"errors"
	"testing"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// lateDELs shows that the DEL of any earlier sandbox of an owner frees nothing, however late it comes and wherever the owner is by
// then. The owner's pods are on one node after the other, and come back to the first.
func (a *api) lateDELs(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.47.0.0/27")
	var sandboxes []running
	for _, on := range []*member{all[0], all[1], all[2], all[0], all[0]} {
		now := running{on, on.mustOwn(t, "web-0"), "web-0"}
		if len(sandboxes) > 0 && now.pod.address != sandboxes[0].pod.address {
			t.Fatalf("the owner has %s on %s, and had %s", now.pod.address, on.name, sandboxes[0].pod.address)
		}
		// Each earlier sandbox, while the pod runs, and after it has ended.
		lateOnes(t, all, sandboxes, "held", now)
		sandboxes = append(sandboxes, now)
		on.delOwned(t, now.pod)
		lateOnes(t, all, sandboxes, "reserved", now)
	}
}

func (m *member) delOwned(t *testing.T, p given) {
	t.Helper()
	if err := m.store.Release(t.Context(), p.key, lease.Policy{}); err != nil && !errors.Is(err, lease.ErrNotLeased) {
		t.Fatal(err)
	}
}

// lateOnes repeats the DEL of each sandbox on its node and on all others, and a GC of all nodes, and expects that the address stays on
// the node in its state.
func lateOnes(t *testing.T, all []*member, sandboxes []running, state string, now running) {
	t.Helper()
	stays := func(what string) {
		t.Helper()
		for _, m := range all {
			l, leased := m.leased(t)[now.pod.address]
			if leased != (m == now.on) || leased && string(l.State) != state {
				t.Fatalf("%s: %s has %s of the owner on %s, leased %t, %q, want %s there", what, m.name, now.pod.address, now.on.name, leased, l.State, state)
			}
		}
	}
	stays("before")
	for _, s := range sandboxes {
		for _, m := range all {
			m.delOwned(t, s.pod)
			stays("the DEL of an earlier sandbox")
		}
	}
	for _, m := range all { // The runtime has only the newest sandbox.
		leases, err := m.store.List(t.Context())
		if err != nil && !errors.Is(err, lease.ErrNotLeased) {
			t.Fatal(err)
		}
		for _, l := range leases {
			for _, h := range l.Holders {
				if m == now.on && h.ContainerID == now.pod.key.ContainerID {
					continue
				}
				if err := m.store.GiveUp(t.Context(), []lease.SeenHolder{{Address: l.Address, Holder: h}}, "its attachment is not valid any more"); err != nil {
					t.Fatal(err)
				}
			}
		}
		m.Reconcile(t.Context())
		stays("a GC")
	}
}
