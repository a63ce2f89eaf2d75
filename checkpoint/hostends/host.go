package hostends

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netfilter"
)

// Host is the host's part of the host accesses of some records.
type Host struct {
	Store *checkpoint.Store
	Host  *kernel.Namespace
	// Records are those of living sandboxes. Complete says that they are all of the node's: what no pod needs goes then.
	Records  []checkpoint.Record
	Complete bool
	// AddsUnlocked takes no lock to add something: the Reconciler looks again if somebody removes meanwhile what it adds.
	AddsUnlocked bool
	// DryRun only says what the host lacks, and changes nothing.
	DryRun bool
}

// HostReport is what the host lacks, and what became of it. The two parts are apart: the routes do not wait for iptables.
type HostReport struct {
	// Plan is for the routes, the policy rules and the stand-in. PlanErr says why relink could not look at them or not change them.
	Plan    hostaccess.HostPlan
	PlanErr error
	// Filter says what is wrong with the rules of iptables. FilterErr says why relink could not look at them or not change them.
	Filter    []string
	FilterErr error
}

// Steps say what is wrong, with one line for many routes.
func (a HostReport) Steps() []string { return slices.Concat(a.Plan.Summary(), a.Filter) }

// Err joins the errors.
func (a HostReport) Err() error { return errors.Join(a.PlanErr, a.FilterErr) }

func (h Host) plan(node hostaccess.Node) (hostaccess.HostPlan, error) {
	return hostaccess.PlanHost(h.Host, checkpoint.HostAccesses(h.Records), node, h.Complete)
}

// Assert makes the host's part right.
func (h Host) Assert(ctx context.Context, node hostaccess.Node) (a HostReport) {
	a.Plan, a.PlanErr = h.AssertRoutes(ctx, node)
	a.Filter, a.FilterErr = h.AssertFilter(ctx, node)
	return a
}

// AssertRoutes makes the routes, the policy rules and the stand-in right. The plan says what was to be done.
func (h Host) AssertRoutes(ctx context.Context, node hostaccess.Node) (hostaccess.HostPlan, error) {
	plan, err := h.plan(node)
	if err != nil || h.DryRun || len(plan.Steps()) == 0 {
		return plan, err // On most looks nothing is to be done: no lock is needed.
	}
	if h.AddsUnlocked && !plan.Removes() {
		return plan, plan.Run(h.Host)
	}
	return plan, h.Store.WithNodeLock(ctx, checkpoint.AccessLock, func() error {
		current, err := h.plan(node)
		if err != nil {
			return err
		}
		return current.Run(h.Host)
	})
}

// AssertFilter makes the rules of iptables right, and deletes those of pods that are gone, as after a kill. It returns what was wrong.
func (h Host) AssertFilter(ctx context.Context, node hostaccess.Node) (differences []string, err error) {
	chain, families, unused, err := h.masquerade(node)
	if err != nil || len(families) == 0 {
		return nil, err
	}
	differences, err = chain.Differs(h.Host, families...)
	if err != nil || h.DryRun || len(differences) == 0 && !unused {
		return differences, err
	}
	return differences, h.Store.WithNodeLock(ctx, checkpoint.MasqueradeLock, func() error {
		chain, families, unused, err := h.masquerade(node)
		if err != nil {
			return err
		}
		if !unused {
			return errors.Join(h.Store.NoteMasquerade(hostaccess.FamiliesOf(chain.Accesses...)...), chain.Ensure(h.Host, families...))
		}
		if err = chain.Ensure(h.Host, families...); err == nil {
			h.Store.ForgetMasquerade()
		}
		return err
	})
}

// masquerade returns the chain of iptables as it should be, and the families that can have it. Only pods whose pair is there have rules: a
// rule for a pod that is gone would meet the next one with its address. A pair without a record keeps its rules: an ADD makes them before it
// saves the checkpoint. unused says that there is no pair.
func (h Host) masquerade(node hostaccess.Node) (chain hostaccess.Masquerade, families []netfilter.Family, unused bool, err error) {
	accesses := slices.DeleteFunc(checkpoint.HostAccesses(h.Records), func(a hostaccess.Access) bool { return !a.Masquerade })
	families = hostaccess.FamiliesOf(accesses...)
	if noted := h.Store.MasqueradeFamilies(); h.Complete && len(noted) > len(families) {
		families = noted
	}
	if len(families) == 0 {
		return chain, nil, false, nil
	}
	ends, err := h.Host.Ends()
	hasPair := func(name string) bool { _, ours := hostaccess.ParseAlias(ends[name].Alias); return ours }
	chain = hostaccess.Masquerade{Node: node, Keep: func(name string) bool { return !h.Complete || hasPair(name) }}
	for _, a := range accesses {
		if _, exists := ends[a.HostName]; exists {
			chain.Accesses = append(chain.Accesses, a)
		}
	}
	unused = h.Complete && len(chain.Accesses) == 0 && !slices.ContainsFunc(slices.Collect(maps.Keys(ends)), hasPair)
	return chain, families, unused, err
}

// Sweep takes away what killed operations have left in the host. It does nothing if a checkpoint cannot be read: nobody knows then what
// is needed. The caller reports that checkpoint. steps say what was wrong. A dry run changes nothing.
func Sweep(ctx context.Context, store *checkpoint.Store, dryRun bool) (steps []string, err error) {
	records, unreadable, err := store.List()
	if err != nil || len(unreadable) > 0 {
		return nil, err
	}
	host, err := kernel.OpenHost()
	if err != nil {
		return nil, err
	}
	defer host.Close()
	node, err := hostaccess.ReadNode(host)
	if err != nil {
		return nil, err
	}
	report := Host{Store: store, Host: host, Records: records, Complete: true, DryRun: dryRun}.Assert(ctx, node)
	return report.Steps(), report.Err()
}
