package whereabouts

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/importer"
)

// Pools are the IPPools of a cluster.
type Pools struct {
	// ranges are those of the IPPools. With node slices each node has one of its own.
	ranges []netip.Prefix
	// allocations are in the order of the addresses. Their names are those of the IPPools.
	allocations []importer.Entry
	// unknown is what no Whereabouts has written.
	unknown []importer.EntryOutcome
}

// object is an IPPool of whereabouts.cni.cncf.io/v1alpha1, or a list of them (pkg/api/whereabouts.cni.cncf.io/v1alpha1/ippool_types.go).
type object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		Range string `json:"range"`
		// Allocations are by their distance from the first address of the range, in decimal.
		Allocations map[string]struct {
			ID     string `json:"id"`
			PodRef string `json:"podref"`
			IfName string `json:"ifname"`
		} `json:"allocations"`
	} `json:"spec"`
}

// group is the API group of Whereabouts.
const group = "whereabouts.cni.cncf.io/"

// PrintCommand is the command that prints what Read reads.
const PrintCommand = "kubectl get ippools.whereabouts.cni.cncf.io -A -o json"

var errNone = errors.New("it has no IPPool of Whereabouts: make it by " + PrintCommand)

// Read reads IPPools, or a list of them, in JSON. What no Whereabouts has written in an IPPool does not keep the rest.
func Read(b []byte) (Pools, error) {
	var o object
	if err := json.Unmarshal(b, &o); err != nil {
		return Pools{}, fmt.Errorf("%w (%w)", errNone, err)
	}
	var p Pools
	switch {
	case o.isPool():
		p.add(o)
	case strings.HasSuffix(o.Kind, "List"):
		for i, item := range o.Items {
			var o object
			if err := json.Unmarshal(item, &o); err != nil || !o.isPool() {
				p.ignore(netip.Addr{}, fmt.Sprintf("items[%d]", i), "it is no IPPool of Whereabouts")
				continue
			}
			p.add(o)
		}
	}
	switch {
	case len(p.ranges) == 0 && len(p.unknown) > 0:
		return Pools{}, fmt.Errorf("%w (%s: %s)", errNone, p.unknown[0].File, p.unknown[0].Reason)
	case len(p.ranges) == 0:
		return Pools{}, errNone
	}
	slices.SortStableFunc(p.allocations, func(a, b importer.Entry) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ContainerID, b.ContainerID), cmp.Compare(a.IfName, b.IfName))
	})
	slices.SortStableFunc(p.unknown, func(a, b importer.EntryOutcome) int {
		return cmp.Or(cmp.Compare(a.File, b.File), a.Address.Compare(b.Address))
	})
	return p, nil
}

func (o object) isPool() bool { return o.Kind == "IPPool" && strings.HasPrefix(o.APIVersion, group) }

func (p *Pools) ignore(a netip.Addr, name, reason string) {
	p.unknown = append(p.unknown, importer.EntryOutcome{File: name, Address: a, State: importer.Ignored, Reason: reason})
}

// add adds an IPPool. Its name says nothing more: it is made of the network, the node and the range.
func (p *Pools) add(o object) {
	name := "IPPool " + o.Metadata.Namespace + "/" + o.Metadata.Name
	subnet, err := netip.ParsePrefix(o.Spec.Range)
	if err != nil || subnet.Addr().Is4In6() {
		p.ignore(netip.Addr{}, name, fmt.Sprintf("its spec.range %q is no network", o.Spec.Range))
		return
	}
	p.ranges = append(p.ranges, subnet.Masked())
	for offset, entry := range o.Spec.Allocations {
		a, ok := addressAt(subnet, offset)
		if !ok {
			p.ignore(netip.Addr{}, fmt.Sprintf("%s, allocation %q", name, offset), "it is no address of "+o.Spec.Range)
			continue
		}
		if err := validate(entry.ID, entry.IfName); err != nil {
			p.ignore(a, name, fmt.Sprintf("nobody can tell whose it is, and a pod may have it: %v", err))
			continue
		}
		p.allocations = append(p.allocations, importer.Entry{Address: a, Name: name, ContainerID: entry.ID, IfName: entry.IfName, Pod: podOf(entry.PodRef)})
	}
}

// validate checks what names of files are made of. An old Whereabouts notes no interface.
func validate(containerID, ifName string) error {
	key := attachment.Key{Network: "any", ContainerID: containerID, IfName: cmp.Or(ifName, "any")}
	return key.Validate()
}

// addressAt returns the address so far from the first one of the network. As in Whereabouts, that is the one that is written before the slash.
func addressAt(subnet netip.Prefix, offset string) (netip.Addr, bool) {
	n, err := strconv.ParseUint(offset, 10, 64)
	if err != nil {
		return netip.Addr{}, false
	}
	b := subnet.Addr().As16()
	sum := new(big.Int).SetUint64(n)
	if sum.Add(sum, new(big.Int).SetBytes(b[:])); sum.BitLen() > 8*len(b) {
		return netip.Addr{}, false
	}
	a := netip.AddrFrom16([16]byte(sum.FillBytes(b[:])))
	if subnet.Addr().Is4() {
		a = a.Unmap()
	}
	return a, subnet.Contains(a)
}

// podOf reads namespace/name, and returns nobody for anything else. Nothing could be kept for a name that no pod can have.
func podOf(ref string) attachment.Pod {
	namespace, name, _ := strings.Cut(ref, "/")
	pod := attachment.Pod{Namespace: namespace, Name: name}
	if pod.Validate() != nil {
		return attachment.Pod{}
	}
	return pod
}
