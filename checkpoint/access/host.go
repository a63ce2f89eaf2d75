package access

import (
	"context"
	"errors"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
)

// patience bounds the wait for somebody who changes the host's part of host access.
const patience = 10 * time.Second

func lock(ctx context.Context, store *checkpoint.Store) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return store.LockHostAccess(ctx)
}

// masqueradePatience bounds the wait for others who change the chain of iptables in the host: each takes a tenth of a second.
const masqueradePatience = 30 * time.Second

func lockMasquerade(ctx context.Context, store *checkpoint.Store) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, masqueradePatience)
	defer cancel()
	return store.LockMasquerade(ctx)
}

// Host is the host's part of the host accesses of some records.
type Host struct {
	Store *checkpoint.Store
	Host  *kernel.Namespace
	// Records are those of living sandboxes. All says that they are all of the node's: what no pod needs goes then.
	Records []checkpoint.Record
	All     bool
	// LooksAgain takes no lock to add something: the Keeper looks again if somebody removes meanwhile what it adds.
	LooksAgain bool
}

// Asserted is what the host lacks, and what became of it. The two parts are apart: the routes do not wait for iptables.
type Asserted struct {
	// Plan is for the routes, the policy rules and the stand-in. PlanErr says why that could not be looked at or not be made.
	Plan    hostaccess.HostPlan
	PlanErr error
	// Filter says what is wrong with the rules of iptables. FilterErr says why they could not be looked at or not be made.
	Filter    []string
	FilterErr error
}

// Err joins the errors.
func (a Asserted) Err() error { return errors.Join(a.PlanErr, a.FilterErr) }

// Differs says what the host lacks, and changes nothing.
func (h Host) Differs(node hostaccess.Node) (a Asserted) {
	a.Plan, a.PlanErr = h.plan(node)
	a.Filter, a.FilterErr = h.filterDiffers(node)
	return a
}

func (h Host) plan(node hostaccess.Node) (hostaccess.HostPlan, error) {
	return hostaccess.PlanHost(h.Host, checkpoint.Accesses(h.Records), node, h.All)
}

func (h Host) filterDiffers(node hostaccess.Node) ([]string, error) {
	living, err := h.living()
	if err != nil {
		return nil, err
	}
	differences, _, err := hostaccess.MasqueradeDiffers(h.Host, node, living...)
	return differences, err
}

// living are the accesses whose pair is there: a rule for a pod that is gone would meet the next one with its address.
func (h Host) living() (living []hostaccess.Access, err error) {
	ends, err := h.Host.Ends()
	for _, a := range checkpoint.Accesses(h.Records) {
		if _, there := ends[a.HostName]; there {
			living = append(living, a)
		}
	}
	return living, err
}

// Assert makes the host's part right.
func (h Host) Assert(ctx context.Context, node hostaccess.Node) (a Asserted) {
	a.Plan, a.PlanErr = h.AssertRoutes(ctx, node)
	a.Filter, a.FilterErr = h.AssertFilter(ctx, node)
	return a
}

// AssertRoutes makes the routes, the policy rules and the stand-in right. The plan says what was to be done.
func (h Host) AssertRoutes(ctx context.Context, node hostaccess.Node) (hostaccess.HostPlan, error) {
	plan, err := h.plan(node)
	if err != nil || len(plan.Steps()) == 0 {
		return plan, err // On most looks nothing is to be done: no lock is needed.
	}
	if h.LooksAgain && !plan.Removes() {
		return plan, plan.Run(h.Host)
	}
	unlock, err := lock(ctx, h.Store)
	if err != nil {
		return plan, err
	}
	defer unlock()
	now, err := h.plan(node)
	if err != nil {
		return plan, err
	}
	return plan, now.Run(h.Host)
}

// AssertFilter makes the rules of iptables right. It returns what was wrong.
func (h Host) AssertFilter(ctx context.Context, node hostaccess.Node) (differences []string, err error) {
	differences, err = h.filterDiffers(node)
	if err != nil || len(differences) == 0 && !h.mayHaveLeftovers() {
		return differences, err
	}
	return differences, h.assertMasquerade(ctx, node)
}

// assertMasquerade makes the rules of iptables right, and deletes those of pods that are gone, as after a kill. A pair that is there
// keeps its rules: an ADD makes the rules before it saves the checkpoint.
func (h Host) assertMasquerade(ctx context.Context, node hostaccess.Node) error {
	if len(h.Store.Masquerades()) == 0 && len(hostaccess.Masquerading(checkpoint.Accesses(h.Records))) == 0 {
		return nil
	}
	unlock, err := lockMasquerade(ctx, h.Store)
	if err != nil {
		return err
	}
	defer unlock()
	living, err := h.living()
	if err != nil {
		return err
	}
	if wanted := hostaccess.Masquerading(living); len(wanted) > 0 {
		if err := errors.Join(h.Store.NoteMasquerade(hostaccess.FamiliesOf(wanted...)...), hostaccess.EnsureMasquerade(h.Host, node, wanted...)); err != nil {
			return err
		}
	}
	return h.sweepMasquerade()
}

func (h Host) mayHaveLeftovers() bool { return h.All && len(h.Store.Masquerades()) > 0 }

func (h Host) sweepMasquerade() error {
	if !h.mayHaveLeftovers() {
		return nil
	}
	ends, err := h.Host.Ends()
	if err != nil {
		return err
	}
	recorded := map[string]bool{}
	for _, a := range checkpoint.Accesses(h.Records) {
		recorded[a.HostName] = true
	}
	left := false
	err = hostaccess.KeepMasquerade(h.Host, h.Store.Masquerades(), func(name string) bool {
		end, there := ends[name]
		_, ours := hostaccess.Whose(end.Alias)
		keep := ours || there && recorded[name]
		left = left || keep
		return keep
	})
	if err == nil && !left {
		h.Store.EndMasquerade()
	}
	return err
}

// Sweep takes away what killed operations have left in the host. It does nothing if a checkpoint cannot be read, which the caller
// says: nobody knows then what is needed.
func Sweep(ctx context.Context, store *checkpoint.Store) error {
	records, unreadable, err := store.List()
	if err != nil || len(unreadable) > 0 {
		return err
	}
	host, err := kernel.OpenHost()
	if err != nil {
		return err
	}
	defer host.Close()
	node, err := hostaccess.ReadNode(host)
	if err != nil {
		return err
	}
	return Host{Store: store, Host: host, Records: records, All: true}.Assert(ctx, node).Err()
}
