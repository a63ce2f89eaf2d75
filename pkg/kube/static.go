package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/owner"
)

const (
	// annotations is what the keys of relink's annotations begin with.
	annotations = "ipam.relink.dev/"
	// ownerKey names the owner of a pod's addresses. A network with the name "owner" has no annotation of its own.
	ownerKey = annotations + "owner"
)

// staticOf returns the addresses that the pod's annotations ask for, nil for none. The annotation for one interface,
// NETWORK.IFNAME, comes before the one for the network.
//
// A key is built and looked up, and never taken apart: names of networks and of interfaces can have dots. So one key can
// be for two attachments of a pod: "lan.net1" is for the interface net1 on the network lan, and for the network lan.net1.
// Both take it. No wrong address comes of that: if none is in the network's ranges, the ADD fails with code 7. Who needs two
// answers renames a network.
//
// Kubernetes allows 63 characters after the slash. A network with a longer name has no annotation.
func staticOf(podAnnotations map[string]string, network, ifName string) (*owner.Static, error) {
	for _, key := range []string{annotations + network + "." + ifName, annotations + network} {
		value, found := podAnnotations[key]
		if !found || key == ownerKey {
			continue
		}
		if err := checkLength(key, value); err != nil {
			return nil, err
		}
		addresses, err := addressesOf(value)
		if err != nil {
			return nil, invalid("the pod's annotation %s=%s: %w. Write addresses with commas between them, such as 10.3.0.7,fd00::7", key, quoteShort(value), err)
		}
		return &owner.Static{Key: key, Addresses: addresses}, nil
	}
	return nil, nil
}

// addressesOf reads addresses with commas between them. As in Multus, an address can have a prefix length, which does not
// count: that of the network's range does.
func addressesOf(value string) ([]netip.Addr, error) {
	var addresses []netip.Addr
	for text := range strings.SplitSeq(value, ",") {
		text = strings.TrimSpace(text)
		address, err := netip.ParseAddr(text)
		if prefix, err2 := netip.ParsePrefix(text); err2 == nil {
			address, err = prefix.Addr(), nil
		}
		switch {
		case err != nil, address.Zone() != "", address.Is4In6():
			return nil, fmt.Errorf("%s is no address as Kubernetes writes it", quoteShort(text))
		case slices.Contains(addresses, address):
			return nil, fmt.Errorf("%s is there twice", address)
		case len(addresses) == maxAddresses:
			return nil, fmt.Errorf("it has more than %d addresses", maxAddresses)
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// replica returns which of a static list's addresses the owner's pod gets. It is nil for an owner without ordinals.
//
// It is counted by the StatefulSet as it is now: two pods that counted by different states of it would take one address.
func (c *Client) replica(ctx context.Context, workload attachment.Owner) (*int, error) {
	ordinal, ok := workload.Ordinal.Number()
	if !ok {
		return nil, nil
	}
	k := sets
	if workload.Group == kruises.Group {
		k = kruises
	}
	set, err := c.Read(ctx, k, workload.Namespace, workload.Name)
	position := 0
	if err == nil {
		position, err = positionIn(set, workload.UID, ordinal)
	}
	if err != nil {
		return nil, unavailable(fmt.Errorf("which of the addresses the pod gets is not known: the StatefulSet %s/%s: %w", workload.Namespace, workload.Name, err))
	}
	return &position, nil
}

// positionIn is the number of the ordinal among those of the StatefulSet with the UID: 0 for the first.
func positionIn(set objects.Object, uid string, ordinal int) (int, error) {
	if current := string(set.Metadata.UID); current != uid {
		return 0, fmt.Errorf("it was made anew: its UID is %s, and was %s", current, uid)
	}
	s, err := scaleOf(set.Spec)
	if err != nil {
		return 0, err
	}
	position, reason := s.position(ordinal)
	if reason != "" {
		return 0, errors.New(reason)
	}
	return position, nil
}
