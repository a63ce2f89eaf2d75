package kube

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
)

// Whoever may make a pod may write 256 KiB of annotations (TotalAnnotationSizeLimitB in k8s.io/apimachinery), and each ADD of the pod
// reads them. These are limits of what one value costs, in bytes.
const (
	// maxAddresses is the greatest number of static addresses: one for each host of a /24. maxStatic has room for so many in
	// their longest form, IPv6 with a prefix length and a space.
	maxAddresses, maxStatic = 256, 16 << 10
	// maxNamed has room for the longest KIND.GROUP/NAME that Kubernetes allows.
	maxNamed = 63 + 1 + 253 + 1 + 253
	// maxElements is the greatest number of networks of a pod, and maxNetworks has room for them with what Multus knows
	// about each. Multus itself has no limit.
	maxElements, maxNetworks = 256, 64 << 10
	// maxShown is what an error shows of a value.
	maxShown = 100
)

// limitOf is the greatest length of an annotation's value in bytes.
func limitOf(key string) int {
	switch {
	case key == networksKey, key == defaultNetworkKey, key == networkStatusKey:
		return maxNetworks
	case strings.HasPrefix(key, annotations) && key != ownerKey:
		return maxStatic
	}
	return maxNamed
}

// checkLength returns an error if the value of the annotation is too long.
func checkLength(key, value string) error {
	if limit := limitOf(key); len(value) > limit {
		return invalid("the pod's annotation %s=%s is longer than %d bytes: shorten it", key, quoteShort(value), limit)
	}
	return nil
}

// networkStatusKey is the annotation in which Multus says what it has attached (Multi-Net-Spec of the Network Plumbing Working Group).
const networkStatusKey = "k8s.v1.cni.cncf.io/network-status"

// NetworksOf returns the interfaces that Multus says it has attached to the pod. It asks nobody: nothing is known of a pod that the watch
// does not show yet.
func (o *Owners) NetworksOf(pod attachment.Pod) (networks []attachment.PodNetwork) {
	if o.watch == nil {
		return nil
	}
	watched := o.watch.pod(pod.Namespace, pod.Name)
	if watched == nil || string(watched.UID) != pod.UID {
		return nil
	}
	var status []struct{ Name, Interface, Mac string }
	if json.Unmarshal([]byte(watched.Annotations[networkStatusKey]), &status) != nil {
		return nil
	}
	for _, s := range status {
		_, name, found := strings.Cut(s.Name, "/") // The namespace and the name of a NetworkAttachmentDefinition.
		if !found {
			name = s.Name
		}
		networks = append(networks, attachment.PodNetwork{Network: name, Interface: s.Interface, MAC: strings.ToLower(s.Mac)})
	}
	return networks
}

// quoteShort is the value in quotes for an error. Of a long one it is the beginning.
func quoteShort(value string) string {
	if len(value) <= maxShown {
		return strconv.Quote(value)
	}
	return strconv.Quote(value[:maxShown]) + " ..."
}
