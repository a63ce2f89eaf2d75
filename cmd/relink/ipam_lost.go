package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// maxLostNamed is how many addresses a remark names.
const maxLostNamed = 8

// lostRemarks name the addresses of pools that pods hold and that this node does not have. Nothing else on the node shows people that
// another pod may get such an address.
func lostRemarks(ctx context.Context, store *lease.Store) (remarks []string, err error) {
	g, err := store.Granted(ctx)
	if errors.Is(err, lease.ErrNotLeased) {
		return nil, nil
	}
	for _, p := range g.Pools {
		if lost := p.Lost(); len(lost) > 0 {
			remarks = append(remarks, fmt.Sprintf("pods of network %s hold %s of the pool %s, and this node does not have that: other nodes may give it. Delete these pods, unless "+
				"a virtual machine is on its way to this node", store.Network(), joinAddresses(lost), p.Name))
		}
	}
	return remarks, err
}

// joinAddresses names the first addresses, and counts the others.
func joinAddresses(addresses []netip.Addr) string {
	var words []string
	for _, a := range addresses[:min(len(addresses), maxLostNamed)] {
		words = append(words, a.String())
	}
	text := strings.Join(words, ", ")
	if rest := len(addresses) - maxLostNamed; rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}
