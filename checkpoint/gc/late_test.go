package gc

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/test/fresh"
)

// There is no time to look for namespaces. What is proven without that is freed, what is alive is fine, and the rest is kept,
// each with its reason. A later pass has the time.
func TestNoTimeForProofs(t *testing.T) {
	n := newNode(t)
	alive, gone := fresh.Sandbox(t), fresh.Sandbox(t)
	n.add(t, "c1", alive, web(1))
	n.add(t, "c2", gone, web(2))
	n.standing[web(3)] = owner.Gone
	n.reserve(t, web(3))
	_, err := n.leases.Allocate(t.Context(), lease.Request{ // Its namespace is not known.
		Attachment: attachment.Key{Network: "lan", ContainerID: "c4", IfName: "eth0"}, Owner: web(4), Sets: []lease.RangeSet{subnet}, Policy: lease.Policy{Sticky: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	fresh.Remove(t, gone)
	n.sandboxes = n.sandboxes[:1]

	o := n.options()
	o.CacheDir = t.TempDir()
	enough := audit.ProofTimeout
	replace(t, &audit.ProofTimeout, time.Nanosecond)
	n.pass(t, o)
	r := n.pass(t, o)
	expectStates(t, "no time", r, "10.3.0.4 freed, free", "checkpoint of c2 kept", "10.3.0.3 kept", "10.3.0.5 kept")
	for _, of := range r.Outcomes {
		if of.Attachment.ContainerID == "c2" && !strings.Contains(strings.Join(of.Evidence, "; "), "the search did not end in time") {
			t.Errorf("%s: %q", of.Address, of.Evidence)
		}
	}
	said := func(problem string) bool {
		return strings.HasPrefix(problem, "it was not found out within 1ns whether the sandboxes in 1 network namespaces are gone: ")
	}
	if r.Complete() || !slices.ContainsFunc(r.Problems, said) || r.Audit.IsHealthy() || r.Audit.Counts[audit.Unknown] != 3 {
		t.Errorf("%q, %v", r.Problems, r.Audit.Counts)
	}

	audit.ProofTimeout = enough
	n.pass(t, o)
	r = n.pass(t, o)
	expectStates(t, "there is time", r, "10.3.0.3 freed, reserved", "checkpoint of c2 freed", "10.3.0.5 kept")
}
