package attach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam/delegate"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// These bound an ADD that finds addresses in use, because each probe takes its time. The runtime's
// next ADD goes on where this one stopped: addresses in use are in quarantine.
const (
	conflictLimit = 8
	detectLimit   = 30 * time.Second
)

// detection is the search for addresses that nobody else on the network has.
type detection struct {
	*addition
	grant    *delegate.Grant
	deadline time.Time
	probed   map[netip.Addr]bool
	// inUse says who uses each of the addresses that were given.
	inUse []string
}

// avoidConflicts renews the grant until nobody on the network has its addresses, if the configuration asks for
// that, or if a pod of a dead node may still have one of them. The interface plugin has to probe. When the
// IPAM plugin runs, no interface exists that could send. Once the interface has the addresses, it is too late.
func (a *addition) avoidConflicts(ctx context.Context, grant *delegate.Grant) error {
	d := detection{addition: a, grant: grant, deadline: time.Now().Add(detectLimit), probed: map[netip.Addr]bool{}}
	for grant.Detection != nil {
		conflicts, err := d.conflicts(ctx)
		exchanged, refused := d.reportConflicts(ctx, conflicts)
		switch {
		case err != nil || refused != nil:
			return cniplugin.Join(refused, probeError(err))
		case !exchanged:
			return nil
		case len(d.inUse) >= conflictLimit || time.Now().After(d.deadline):
			return cniplugin.Error(types.ErrTryAgainLater, "%d addresses were tried and are in use on the network: %s", len(d.inUse), strings.Join(d.inUse, ", "))
		}
		if err := grant.Renew(ctx); err != nil {
			return cniplugin.Wrap(err, "after addresses in use on the network ("+strings.Join(d.inUse, ", ")+")")
		}
	}
	return nil
}

// probeError makes the runtime try again if the network is away.
func probeError(err error) error {
	if errors.Is(err, kernel.ErrNoCarrier) {
		return cniplugin.Error(types.ErrTryAgainLater, "conflictDetection: %v", err)
	}
	return err
}

// reportConflicts tells the IPAM plugin of every conflict. It returns whether the plugin gives other addresses
// now. If an earlier ADD of this attachment was given an address, a checkpoint has it, and no other
// address takes its place.
func (d *detection) reportConflicts(ctx context.Context, conflicts []kernel.Conflict) (exchanged bool, err error) {
	var errs []error
	for _, c := range conflicts {
		if d.earlier != nil && slices.ContainsFunc(d.earlier.Interface.Addresses, func(a netstate.Address) bool { return a.Prefix.Addr() == c.Address }) {
			errs = append(errs, cniplugin.Error(types.ErrTryAgainLater, "%s, which this attachment has by its checkpoint, is in use on the network by %s: end that use", c.Address, c.MAC))
			continue
		}
		replaced, err := d.grant.Conflict(ctx, c.Address, c.MAC)
		if replaced {
			d.inUse = append(d.inUse, fmt.Sprintf("%s by %s", c.Address, c.MAC))
			delete(d.probed, c.Address)
		}
		exchanged, errs = exchanged || replaced, append(errs, err)
		failpoint.Here("conflict told")
	}
	return exchanged, cniplugin.Join(errs...)
}

// conflicts returns the addresses that another host has. It probes only for those that it has not
// probed for before.
func (d *detection) conflicts(ctx context.Context) ([]kernel.Conflict, error) {
	addresses, err := cniplugin.Addresses(d.grant.Result)
	if err != nil {
		return nil, err
	}
	nodeAddresses, err := d.nodeAddresses()
	if err != nil {
		return nil, err
	}
	var found []kernel.Conflict
	var unknown []netip.Addr
	for _, address := range addresses {
		switch a := address.Prefix.Addr(); {
		case slices.Contains(nodeAddresses, a):
			found = append(found, kernel.Conflict{Address: a, MAC: d.parent.MAC + ", the node's " + d.parent.Name})
		case !d.probed[a]:
			unknown = append(unknown, a)
			d.probed[a] = true
		}
	}
	if len(unknown) == 0 {
		return found, nil
	}
	probed, err := d.sandbox.Probe(ctx, d.index, unknown, kernel.ProbeOptions{Count: d.grant.Detection.Probes, Wait: d.grant.Detection.Wait})
	return append(found, probed...), err
}

// nodeAddresses returns the node's own addresses on the same network. A macvlan and its parent do not hear
// each other.
func (d *detection) nodeAddresses() ([]netip.Addr, error) {
	if d.Link.Macvlan == nil {
		return nil, nil
	}
	return d.parentNamespace().Addresses(d.parent.Index)
}
