package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/owner"
)

const (
	// networksKey and defaultNetworkKey are the annotations that tell Multus the networks of a pod.
	networksKey       = "k8s.v1.cni.cncf.io/networks"
	defaultNetworkKey = "v1.multus-cni.io/default-network"
	// firstIfName is the name that container runtimes give the first interface of a pod.
	firstIfName = "eth0"
	// maxTries bounds how often an object is read again that somebody has changed.
	maxTries = 3
)

// element is one network in an annotation for Multus (NetworkSelectionElement in network-attachment-definition-client).
type element struct {
	Interface string `json:"interface"`
	Claim     string `json:"ipam-claim-reference"`
}

// claimOf returns the name of the IPAMClaim for the interface, empty for none. listed says that the annotations have the
// interface.
//
// KubeVirt gives each element an interface. Where there is none, Multus counts: net1, net2 and so on (getIfname in pkg/multus). If
// Multus is configured to give all pods further networks, it counts these first. Then the claim can be for another network,
// which is an error later.
func claimOf(pod *metav1.ObjectMeta, ifName string) (name string, listed bool, err error) {
	elements, err := elementsOf(pod, networksKey)
	if err != nil {
		return "", false, err
	}
	for i := range elements {
		elements[i].Interface = cmp.Or(elements[i].Interface, "net"+strconv.Itoa(i+1))
	}
	first, err := elementsOf(pod, defaultNetworkKey)
	if err != nil {
		return "", false, err
	}
	for _, e := range first {
		e.Interface = cmp.Or(e.Interface, firstIfName)
		elements = append(elements, e)
	}
	for _, e := range elements {
		if e.Interface != ifName {
			continue
		}
		if name != "" && e.Claim != "" && e.Claim != name {
			return "", false, invalid("the pod's annotations %s and %s name two IPAMClaims for the interface %s, %s and %s: name one", networksKey, defaultNetworkKey, ifName, quoteShort(name), quoteShort(e.Claim))
		}
		name, listed = cmp.Or(name, e.Claim), true
	}
	if name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", false, invalid("the pod's annotations name the IPAMClaim %s for the interface %s, which no object can have as its name: correct it", quoteShort(name), ifName)
	}
	return name, listed, nil
}

// elementsOf reads an annotation for Multus. Like Multus (parsePodNetworkAnnotation in pkg/k8sclient), it takes text with one of
// these characters for JSON. The other form has names with commas between them: it has no claims.
func elementsOf(pod *metav1.ObjectMeta, key string) ([]element, error) {
	value := pod.Annotations[key]
	if err := checkLength(key, value); err != nil {
		return nil, err
	}
	if !strings.ContainsAny(value, `[{"`) {
		return nil, nil
	}
	var elements []element
	err := json.Unmarshal([]byte(value), &elements)
	if err == nil && len(elements) > maxElements {
		err = fmt.Errorf("it has more than %d networks", maxElements)
	}
	if err != nil {
		return nil, invalid("the pod's annotation %s=%s is no list of networks (%s). Correct it as Multus needs it", key, quoteShort(value), quoteShort(err.Error()))
	}
	return elements, nil
}

// claim reads the IPAMClaim. It must be one of the machine that d has found. KubeVirt may make it a moment after the pod.
//
// Its spec.network must be the name of the CNI configuration, if it is there. Its spec.interface does not count: that may be
// the name in the virtual machine, and KubeVirt gives the pod's interface a hashed one.
func (c *Client) claim(ctx context.Context, d decision, name, network string) (*owner.Claim, error) {
	if d.instanceUID == "" {
		return nil, invalid("the pod names the IPAMClaim %s, and its addresses are those of %s: only a launcher of a virtual machine has IPAMClaims. Remove ipam-claim-reference from the pod's annotation", name, d.Owner)
	}
	object, err := c.Read(ctx, claims, d.Owner.Namespace, name)
	if err != nil {
		return nil, unavailable(fmt.Errorf("the pod's IPAMClaim %s: %w", name, err))
	}
	if err := checkMachine(object, d); err != nil {
		return nil, err
	}
	var spec struct {
		Network string `json:"network"`
	}
	if len(object.Spec) > 0 {
		if err := json.Unmarshal(object.Spec, &spec); err != nil {
			return nil, unavailable(fmt.Errorf("the spec of the IPAMClaim %s: %s", name, quoteShort(err.Error())))
		}
	}
	if spec.Network != "" && spec.Network != network {
		return nil, invalid("the pod's IPAMClaim %s has spec.network=%s, and the interface is on the network %s: name the claim of that network", name, quoteShort(spec.Network), network)
	}
	ips, err := ipsOf(object)
	if err != nil {
		return nil, err
	}
	return &owner.Claim{Name: name, UID: string(object.Metadata.UID), Version: object.Metadata.ResourceVersion, IPs: ips}, nil
}

// checkMachine returns an error if the claim is another machine's: anybody may write the name of any claim into a pod.
//
// KubeVirt makes the VirtualMachine the claim's owner, and the VirtualMachineInstance if there is none (ownerReferenceFor in
// pkg/vminetworkscontroller of kubevirt/ipam-extensions). A claim that somebody has made by hand may have no reference.
func checkMachine(claim objects.Object, d decision) error {
	var reference *metav1.OwnerReference
	for i, r := range claim.Metadata.OwnerReferences {
		version, err := schema.ParseGroupVersion(r.APIVersion)
		if err != nil || version.Group != machines.Group {
			continue
		}
		if string(r.UID) == d.Owner.UID || r.UID == d.instanceUID {
			return nil
		}
		reference = &claim.Metadata.OwnerReferences[i]
	}
	if reference == nil {
		return nil
	}
	return invalid("the pod's IPAMClaim %s belongs to the %s with the UID %s, and the pod runs for %s with the UID %s: name a claim of the pod's own machine", claim.Metadata.Name, quoteShort(reference.Kind+" "+reference.Name), quoteShort(string(reference.UID)), d.Owner, d.Owner.UID)
}

// ipsOf returns the addresses in the status of an IPAMClaim.
func ipsOf(claim objects.Object) (ips []netip.Prefix, err error) {
	var status struct {
		IPs []string `json:"ips"`
	}
	if len(claim.Status) > 0 {
		if err := json.Unmarshal(claim.Status, &status); err != nil {
			return nil, invalid("the status of the IPAMClaim %s: %s", claim.Metadata.Name, quoteShort(err.Error()))
		}
	}
	for _, text := range status.IPs {
		ip, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, invalid("the IPAMClaim %s has %s in status.ips, which is no address with a prefix length: correct it", claim.Metadata.Name, quoteShort(text))
		}
		ips = append(ips, ip)
	}
	return ips, nil
}

// Fulfil implements owner.Asker. It takes at most owner.AskTimeout. That the claim is of the pod's machine is known: Ask has returned
// it for the pod, and no other claim has its UID.
func (o *Owners) Fulfil(ctx context.Context, f owner.Fulfilment) error {
	ctx, cancel := context.WithTimeout(ctx, owner.AskTimeout)
	defer cancel()
	// One request is enough if nobody has changed the claim since it was read: a slow API has no time for two.
	if f.Claim.Version != "" && len(f.Claim.IPs) == 0 {
		if err := o.client.writeIPs(ctx, f, f.Claim.UID, f.Claim.Version); !errors.Is(err, objects.ErrConflict) {
			return err
		}
	}
	var err error
	for range maxTries {
		if err = o.client.fulfil(ctx, f); !errors.Is(err, objects.ErrConflict) {
			return err
		}
	}
	return err
}

// fulfil decides by the claim as it is now. The API takes the change only if the claim is still that one. The error matches
// objects.ErrConflict otherwise.
func (c *Client) fulfil(ctx context.Context, f owner.Fulfilment) error {
	object, err := c.Read(ctx, claims, f.Pod.Namespace, f.Claim.Name)
	if err != nil {
		return unavailable(fmt.Errorf("the IPAMClaim %s: %w", f.Claim.Name, err))
	}
	written, err := alreadyFulfilled(object, f)
	if written || err != nil {
		return err
	}
	return c.writeIPs(ctx, f, string(object.Metadata.UID), object.Metadata.ResourceVersion)
}

// writeIPs writes the addresses into the claim of that UID and version. The error matches objects.ErrConflict if there is
// another one.
func (c *Client) writeIPs(ctx context.Context, f owner.Fulfilment, uid, version string) error {
	// The definition of IPAMClaim requires ips and ownerPod in a status. A merge keeps the rest of the status.
	change := map[string]any{
		"metadata": map[string]any{"uid": uid, "resourceVersion": version},
		"status":   map[string]any{"ips": f.IPs, "ownerPod": f.Pod.Name},
	}
	if err := c.PatchStatus(ctx, claims, f.Pod.Namespace, f.Claim.Name, change); err != nil {
		return unavailable(fmt.Errorf("write the addresses into the IPAMClaim %s: %w", f.Claim.Name, err))
	}
	return nil
}

// alreadyFulfilled says whether the addresses are in the claim's status already. The error matches owner.ErrDiffers if there are
// others, or if it is another claim. Prefix lengths do not count.
func alreadyFulfilled(claim objects.Object, f owner.Fulfilment) (bool, error) {
	if uid := string(claim.Metadata.UID); uid != f.Claim.UID {
		return false, fmt.Errorf("%w: the IPAMClaim %s was made anew: its UID is %s, and was %s", owner.ErrDiffers, f.Claim.Name, uid, f.Claim.UID)
	}
	ips, err := ipsOf(claim)
	if err != nil || len(ips) == 0 && len(f.IPs) > 0 {
		return false, err
	}
	if !slices.Equal(sortedAddresses(ips), sortedAddresses(f.IPs)) {
		return false, fmt.Errorf("%w: the IPAMClaim %s has %v, and the pod got %v", owner.ErrDiffers, f.Claim.Name, ips, f.IPs)
	}
	return true, nil
}

// sortedAddresses are the addresses in order, each once.
func sortedAddresses(ips []netip.Prefix) (addresses []netip.Addr) {
	for _, ip := range ips {
		addresses = append(addresses, ip.Addr())
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return slices.Compact(addresses)
}
