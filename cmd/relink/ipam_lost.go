package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// mostLostNamed is how many addresses a remark names.
const mostLostNamed = 8

// lostRemarks name the addresses of pools that pods hold and that this node does not have. Nothing else on the node shows people that
// another pod may get such an address.
func lostRemarks(ctx context.Context, store *lease.Store) (all []string, err error) {
	g, err := store.Granted(ctx)
	if errors.Is(err, lease.ErrNone) {
		return nil, nil
	}
	for _, p := range g.Pools {
		if lost := p.Lost(); len(lost) > 0 {
			all = append(all, fmt.Sprintf("pods of network %s hold %s of the pool %s, and this node does not have that: other nodes may give it. Delete these pods, unless "+
				"a virtual machine is on its way to this node", store.Network(), named(lost), p.Name))
		}
	}
	return all, err
}

// named names the first addresses, and counts the others.
func named(addresses []netip.Addr) string {
	var words []string
	for _, a := range addresses[:min(len(addresses), mostLostNamed)] {
		words = append(words, a.String())
	}
	text := strings.Join(words, ", ")
	if more := len(addresses) - mostLostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
