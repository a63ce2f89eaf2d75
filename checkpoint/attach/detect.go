package attach

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/kernel"
)

// conflictLimit bounds how often an ADD asks for other addresses, as each takes its
// probes' time. The runtime's next ADD goes on where this one stopped: what was in
// use is in quarantine.
const conflictLimit = 8

// unused returns the result once nobody on the network has its addresses, if the
// configuration wants that known. It is the interface plugin that asks: when the IPAM
// plugin runs, there is no interface yet that could send, and once the interface has
// the addresses it is too late.
func (a *addition) unused(ctx context.Context, result *current.Result) (*current.Result, error) {
	detection, err := a.ipam.Detection()
	if err != nil || detection == nil {
		return result, err
	}
	probed := map[netip.Addr]bool{}
	var inUse []string
	for range conflictLimit {
		conflicts, err := a.probe(ctx, result, detection, probed)
		if err != nil || len(conflicts) == 0 {
			return result, err
		}
		for _, c := range conflicts {
			inUse = append(inUse, fmt.Sprintf("%s by %s", c.Address, c.MAC))
			if err := a.ipam.Conflict(ctx, c.Address, c.MAC); err != nil {
				return nil, err
			}
			failpoint.Here("conflict told")
		}
		if result, err = a.ipam.Add(ctx); err != nil {
			return nil, cniplugin.Wrap(err, "after addresses in use on the network ("+strings.Join(inUse, ", ")+")")
		}
	}
	return nil, cniplugin.Error(types.ErrTryAgainLater, "%d addresses were tried and are in use on the network: %s", len(inUse), strings.Join(inUse, ", "))
}

// probe returns those of the addresses that another host has, of those that were not
// probed for before.
func (a *addition) probe(ctx context.Context, result *current.Result, d *ipam.Detection, probed map[netip.Addr]bool) ([]kernel.Conflict, error) {
	addresses, err := cniplugin.Addresses(result)
	if err != nil {
		return nil, err
	}
	var unknown []netip.Addr
	for _, address := range addresses {
		if !probed[address.Prefix.Addr()] {
			unknown = append(unknown, address.Prefix.Addr())
			probed[address.Prefix.Addr()] = true
		}
	}
	if len(unknown) == 0 {
		return nil, nil
	}
	return a.sandbox.Probe(ctx, a.index, unknown, kernel.Probing{Count: d.Probes, Wait: d.Wait})
}
