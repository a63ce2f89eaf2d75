package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/gc"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
)

// leases opens the store of the network.
func (c *chaos) leases() *lease.Store {
	s, err := lease.Open(c.leaseDir, network)
	if err != nil {
		c.t.Error(err)
	}
	return s
}

// sources are what relink gc has, with the agent to ask. No process outside of this test keeps a namespace of it.
func (c *chaos) sources() audit.Sources {
	asked := control.Client{Path: c.agentSocket}
	return audit.Sources{
		Store: c.store, Leases: []*lease.Store{c.leases()}, LeaseDirs: []string{c.leaseDir}, Runtime: asked, Judge: asked, CacheDir: c.dir, AllProcesses: true,
	}
}

// passes frees what is dead, again and again.
func (c *chaos) passes(r *rand.Rand) {
	for !c.over() {
		c.pass(chaosGrace, r.IntN(4) == 0)
		c.pause(r, 600)
	}
}

// pass makes a pass, and compares what it has freed with the truth.
func (c *chaos) pass(grace time.Duration, dry bool) gc.PassReport {
	began := time.Now()
	report, err := gc.Run(c.t.Context(), gc.Options{Sources: c.sources(), Grace: grace, DryRun: dry})
	if errors.Is(err, flock.ErrBusy) {
		return report // The other one goes on for long: somebody does not answer it.
	}
	if err != nil {
		c.t.Error(err)
	}
	for _, f := range report.Audit.Findings {
		if f.Severity == audit.Error {
			c.t.Errorf("an audit of a node on which all is well: %+v", f)
		}
	}
	for _, o := range report.Outcomes {
		switch o.State {
		case change.Failed:
			c.t.Errorf("%+v", o)
		case gc.Freed, gc.ToFree:
			c.freed(o, began, grace)
		}
	}
	c.count("passes")
	return report
}

// freed judges what a pass has freed, or would.
func (c *chaos) freed(o gc.PassOutcome, began time.Time, grace time.Duration) {
	what, wrong := "checkpoints freed", error(nil)
	switch s := o.Subject; {
	case s.Holder != nil:
		what, wrong = "holders freed", c.truth.dead(s.Holder.ContainerID, grace)
	case s.Reservation:
		what, wrong = "reservations freed", c.truth.unneeded(s.Lease.Owner, began)
	default:
		wrong = c.truth.dead(o.Attachment.ContainerID, grace)
	}
	if wrong != nil {
		c.t.Errorf("%s: %v: %+v", o.State, wrong, o)
	}
	if o.State == gc.Freed {
		c.count(what)
	}
}

// compares compares the leases with the truth.
func (c *chaos) compares(r *rand.Rand) {
	for s := c.leases(); !c.over(); c.pause(r, 300) {
		c.truth.compare(s)
		c.count("comparisons")
	}
}

// finish deletes everything. Then as many passes as it needs free what is left: first the sandboxes whose DEL was lost, twice seen, then what
// these leave to their owners.
func (c *chaos) finish(workloads []workload, r *rand.Rand) {
	c.knowsCluster(r)
	for _, w := range workloads {
		w.finish(r)
	}
	for _, w := range workloads {
		w.settled()
	}
	if ids := c.truth.living(); len(ids) > 0 {
		c.t.Errorf("the test itself has left the sandboxes %v", ids)
	}
	const grace = 200 * time.Millisecond // Nobody attaches anything any more.
	for round := range 6 {
		if round == 2 { // What had a DEL is free, and there is room.
			c.loseSome(r)
		}
		if report := c.pass(grace, false); len(report.Problems) > 0 {
			c.t.Errorf("everybody is there, and a pass has problems: %v", report.Problems)
		}
		time.Sleep(grace)
	}
	c.nothingIsLeft(c.pass(grace, false))
}

// knowsCluster makes passes until the store knows which cluster it is of. The passes before can all have been at times at which somebody
// did not answer: on a busy machine there are few. When nobody lives any more, no pass finds it out, and so none frees what waits.
func (c *chaos) knowsCluster(r *rand.Rand) {
	known := func() bool { return errors.Is(c.leases().CheckCluster(c.t.Context(), zeroUID), lease.ErrCluster) }
	if known() {
		return
	}
	stays := &set{crew: crew{chaos: c}, kind: "StatefulSet.apps", name: "stays", replicas: 1, pods: map[int]*pod{}}
	stays.made = stays.make(stays.kind, stays.name, setSpec(stays.name, stays.spec()))
	for deadline := time.Now().Add(time.Minute); !known() && time.Now().Before(deadline); {
		stays.reconcile(r)
		stays.leave(r, stays.pods[0]) // Its address waits.
		stays.settled()
		c.pass(chaosGrace, false)
	}
	stays.finish(r)
	stays.settled()
}

// loseSome attaches pods and loses their sandboxes, so that something is left to free in any case.
func (c *chaos) loseSome(r *rand.Rand) {
	lost := crew{chaos: c}
	for i := range 3 {
		p := lost.newPod(fmt.Sprintf("lost-%d", i), nil, false)
		for range 10 { // Some ADDs are killed.
			b := &cell{of: p.owner, pod: podOf(p.made), macvlan: true}
			if c.run(r, b) {
				c.vanish(b, "")
				break
			}
		}
		lost.drop(r, p)
	}
}

// nothingIsLeft looks for what relink, its plugins or the last pass have left.
func (c *chaos) nothingIsLeft(last gc.PassReport) {
	if len(last.Outcomes) > 0 {
		c.t.Errorf("left: %+v", last.Outcomes)
	}
	all, err := c.leases().List(c.t.Context())
	all = slices.DeleteFunc(all, func(l lease.Lease) bool { return l.State == lease.Quarantined && !l.Until.IsZero() })
	if err != nil || len(all) > 0 {
		c.t.Errorf("leases that are left: %+v, %v", all, err)
	}
	records, unreadable, err := c.store.List()
	if err != nil || len(records)+len(unreadable) > 0 {
		c.t.Errorf("checkpoints that are left: %+v, %v, %v", records, unreadable, err)
	}
	var seen gc.Sightings
	b, err := os.ReadFile(filepath.Join(c.store.Dir(), ".agent", "gc.json"))
	if err == nil {
		err = json.Unmarshal(b, &seen)
	}
	if err != nil || len(seen.List) > 0 {
		c.t.Errorf("sightings that are left: %+v, %v", seen, err)
	}
	for line := range strings.Lines(fresh.IP(c.t, "", "-o link show type macvlan")) {
		c.t.Errorf("an interface that is left on the host: %s", line)
	}
}
