package hostends

import (
	"context"
	"errors"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
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
	// Plan is for the routes, the policy rules and the stand-in. PlanErr says why that could not be looked at or not be made.
	Plan    hostaccess.HostPlan
	PlanErr error
	// Filter says what is wrong with the rules of iptables. FilterErr says why they could not be looked at or not be made.
	Filter    []string
	FilterErr error
}

// Err joins the errors.
func (a HostReport) Err() error { return errors.Join(a.PlanErr, a.FilterErr) }

func (h Host) plan(node hostaccess.Node) (hostaccess.HostPlan, error) {
	return hostaccess.PlanHost(h.Host, checkpoint.HostAccesses(h.Records), node, h.Complete)
}

func (h Host) compareFilter(node hostaccess.Node) ([]string, error) {
	live, err := h.liveAccesses()
	if err != nil {
		return nil, err
	}
	differences, _, err := hostaccess.MasqueradeDiffers(h.Host, node, live...)
	return differences, err
}

// liveAccesses are the accesses whose pair is there: a rule for a pod that is gone would meet the next one with its address.
func (h Host) liveAccesses() (live []hostaccess.Access, err error) {
	ends, err := h.Host.Ends()
	for _, a := range checkpoint.HostAccesses(h.Records) {
		if _, exists := ends[a.HostName]; exists {
			live = append(live, a)
		}
	}
	return live, err
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
	return plan, h.Store.WithHostAccess(ctx, func() error {
		current, err := h.plan(node)
		if err != nil {
			return err
		}
		return current.Run(h.Host)
	})
}

// AssertFilter makes the rules of iptables right. It returns what was wrong.
func (h Host) AssertFilter(ctx context.Context, node hostaccess.Node) (differences []string, err error) {
	differences, err = h.compareFilter(node)
	if err != nil || h.DryRun || len(differences) == 0 && !h.mayHaveLeftovers() {
		return differences, err
	}
	return differences, h.assertMasquerade(ctx, node)
}

// assertMasquerade makes the rules of iptables right, and deletes those of pods that are gone, as after a kill. A pair that is there
// keeps its rules: an ADD makes the rules before it saves the checkpoint.
func (h Host) assertMasquerade(ctx context.Context, node hostaccess.Node) error {
	if len(h.Store.MasqueradeFamilies()) == 0 && len(hostaccess.Masquerading(checkpoint.HostAccesses(h.Records))) == 0 {
		return nil
	}
	return h.Store.WithMasquerade(ctx, func() error {
		live, err := h.liveAccesses()
		if err != nil {
			return err
		}
		if wanted := hostaccess.Masquerading(live); len(wanted) > 0 {
			if err := errors.Join(h.Store.NoteMasquerade(hostaccess.FamiliesOf(wanted...)...), hostaccess.EnsureMasquerade(h.Host, node, wanted...)); err != nil {
				return err
			}
		}
		return h.sweepMasquerade()
	})
}

func (h Host) mayHaveLeftovers() bool { return h.Complete && len(h.Store.MasqueradeFamilies()) > 0 }

func (h Host) sweepMasquerade() error {
	if !h.mayHaveLeftovers() {
		return nil
	}
	ends, err := h.Host.Ends()
	if err != nil {
		return err
	}
	recorded := map[string]bool{}
	for _, a := range checkpoint.HostAccesses(h.Records) {
		recorded[a.HostName] = true
	}
	remaining := false
	err = hostaccess.KeepMasquerade(h.Host, h.Store.MasqueradeFamilies(), func(name string) bool {
		end, exists := ends[name]
		_, ours := hostaccess.ParseAlias(end.Alias)
		keep := ours || exists && recorded[name]
		remaining = remaining || keep
		return keep
	})
	if err == nil && !remaining {
		h.Store.ForgetMasquerade()
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
	return Host{Store: store, Host: host, Records: records, Complete: true}.Assert(ctx, node).Err()
}
