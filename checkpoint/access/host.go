package access

import (
	"context"
	"errors"
	"slices"
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
	// Quick leaves out the rules of iptables, and takes no lock to add something. The Keeper looks again if somebody removes
	// meanwhile what it adds.
	Quick bool
}

// Differs says what the host lacks, and changes nothing.
func (h Host) Differs(node hostaccess.Node) (hostaccess.HostPlan, error) {
	plan, err := hostaccess.PlanHost(h.Host, checkpoint.Accesses(h.Records), node, h.All)
	if err != nil || h.Quick {
		return plan, err
	}
	living, err := h.living()
	if err != nil {
		return plan, err
	}
	rules, _, err := hostaccess.MasqueradeDiffers(h.Host, node, living...)
	plan.Steps = append(plan.Steps, rules...)
	return plan, err
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

// Assert makes the host's part right. The plan says what was to be done.
func (h Host) Assert(ctx context.Context, node hostaccess.Node) (hostaccess.HostPlan, error) {
	plan, err := h.Differs(node)
	if err != nil || len(plan.Steps) == 0 && !h.mayHaveLeftovers() {
		return plan, err // On most looks nothing is to be done: no lock is needed.
	}
	if h.Quick && !plan.Removes() {
		return plan, plan.Run(h.Host)
	}
	failed := h.assertRoutes(ctx, node)
	if !h.Quick {
		failed = errors.Join(failed, h.assertMasquerade(ctx, node))
	}
	return plan, failed
}

func (h Host) assertRoutes(ctx context.Context, node hostaccess.Node) error {
	unlock, err := lock(ctx, h.Store)
	if err != nil {
		return err
	}
	defer unlock()
	plan, err := hostaccess.PlanHost(h.Host, checkpoint.Accesses(h.Records), node, h.All)
	if err != nil {
		return err
	}
	return plan.Run(h.Host)
}

// assertMasquerade makes the rules of iptables right, and deletes those of pods that are gone, as after a kill. A pair that is there
// keeps its rules: an ADD makes the rules before it saves the checkpoint.
func (h Host) assertMasquerade(ctx context.Context, node hostaccess.Node) error {
	if !h.Store.Masquerades() && !slices.ContainsFunc(checkpoint.Accesses(h.Records), func(a hostaccess.Access) bool { return a.Masquerade }) {
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
	if slices.ContainsFunc(living, func(a hostaccess.Access) bool { return a.Masquerade }) {
		if err := errors.Join(h.Store.NoteMasquerade(), hostaccess.EnsureMasquerade(h.Host, node, living...)); err != nil {
			return err
		}
	}
	return h.sweepMasquerade()
}

func (h Host) mayHaveLeftovers() bool { return h.All && !h.Quick && h.Store.Masquerades() }

func (h Host) sweepMasquerade() error {
	if !h.mayHaveLeftovers() {
		return nil
	}
	ends, err := h.Host.Ends()
	if err != nil {
		return err
	}
	left := false
	err = hostaccess.KeepMasquerade(h.Host, func(name string) bool {
		_, ours := hostaccess.Whose(ends[name].Alias)
		left = left || ours
		return ours
	})
	if err == nil && !left {
		h.Store.EndMasquerade()
	}
	return err
}

// Sweep takes away what killed operations have left in the host. It does nothing if a checkpoint cannot be read: nobody knows then
// what is needed.
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
	_, err = Host{Store: store, Host: host, Records: records, All: true}.Assert(ctx, node)
	return err
}
