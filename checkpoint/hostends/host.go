package hostends

import (
	"context"
	"errors"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/flock"
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

// Assert makes the host's part right.
func (h Host) Assert(ctx context.Context, node hostaccess.Node) (a HostReport) {
	a.Plan, a.PlanErr = h.AssertRoutes(ctx, node)
	a.Filter, a.FilterErr = h.AssertFilter(ctx, node)
	return a
}

// AssertRoutes makes the routes, the policy rules and the stand-in right. The plan says what was to be done.
func (h Host) AssertRoutes(ctx context.Context, node hostaccess.Node) (hostaccess.HostPlan, error) {
	plan, err := hostaccess.PlanHost(h.Host, checkpoint.HostAccesses(h.Records), node, h.Complete)
	if err == nil && !h.DryRun {
		err = plan.Run(h.Host)
	}
	if err == nil && !h.DryRun && plan.Unused {
		err = removeShared(ctx, h.Store, h.Host)
	}
	return plan, err
}

// AssertFilter makes the rules of iptables right, and takes them away when no pod needs them. It returns what was wrong.
func (h Host) AssertFilter(ctx context.Context, node hostaccess.Node) (differences []string, err error) {
	needed, noted, err := h.masquerade(node)
	if err != nil || len(needed.Sources)+len(noted.Sources) == 0 {
		return nil, err
	}
	differences, err = needed.Differs(h.Host, noted)
	if err != nil || h.DryRun || len(differences) == 0 && noted.Applied && noted.Same(needed) {
		return differences, err
	}
	return differences, h.Store.WithNodeLock(ctx, checkpoint.MasqueradeLock, flock.Exclusive, func() error {
		needed, _, err := h.masquerade(node)
		if err != nil {
			return err
		}
		return h.Store.ApplyMasquerade(h.Host, needed)
	})
}

// masquerade returns what the rules of iptables should do, and what the last change of them noted. What pods without a record may need
// stays: an ADD makes the pair and the rules before it saves the checkpoint.
func (h Host) masquerade(node hostaccess.Node) (needed, noted hostaccess.Masquerade, err error) {
	noted, needed = h.Store.Masquerade(), hostaccess.MasqueradeOf(node, checkpoint.HostAccesses(h.Records)...)
	if needed.Same(needed.Join(noted)) {
		return needed, noted, nil
	}
	unknown := !h.Complete
	if h.Complete {
		unknown, err = h.hasUnknownPod()
	}
	if unknown {
		needed = needed.Join(noted)
	}
	return needed, noted, err
}

// hasUnknownPod says whether a pair in the host belongs to a pod with masquerade without a record.
func (h Host) hasUnknownPod() (unknown bool, err error) {
	ends, err := h.Host.Ends()
	for name, link := range ends {
		key, ours := hostaccess.ParseAlias(link.Alias)
		unknown = unknown || ours && name == hostaccess.HostName(key, true) && !slices.ContainsFunc(h.Records, func(r checkpoint.Record) bool {
			return r.HostAccess != nil && r.HostAccess.HostName == name
		})
	}
	return unknown, err
}

// Sweep takes away what killed operations have left in the host. It does nothing if a checkpoint cannot be read: nobody knows then what
// is needed. The caller reports that checkpoint. steps say what was wrong. A dry run changes nothing.
func Sweep(ctx context.Context, store *checkpoint.Store, dryRun bool) (steps []string, err error) {
	records, unreadable, err := store.List()
	if err != nil || len(unreadable) > 0 {
		return nil, err
	}
	host, node, err := openNode()
	if err != nil {
		return nil, err
	}
	defer host.Close()
	report := Host{Store: store, Host: host, Records: records, Complete: true, DryRun: dryRun}.Assert(ctx, node)
	return report.Steps(), report.Err()
}

// openNode opens the host's namespace and reads the node there. The caller closes the namespace.
func openNode() (host *kernel.Namespace, node hostaccess.Node, err error) {
	if host, err = kernel.OpenHost(); err != nil {
		return nil, node, err
	}
	if node, err = hostaccess.ReadNode(host); err != nil {
		host.Close()
	}
	return host, node, err
}
