package kube

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/relink-cni/relink/pkg/owner"
)

// Whoever may make a pod may write 256 KiB of annotations (TotalAnnotationSizeLimitB in k8s.io/apimachinery), and each ADD of the pod
// reads them. These are limits of what one value costs, in bytes.
const (
	// mostAddresses is the greatest number of static addresses: one for each host of a /24. mostStatic has room for so many in
	// their longest form, IPv6 with a prefix length and a space.
	mostAddresses, mostStatic = 256, 16 << 10
	// mostNamed has room for the longest KIND.GROUP/NAME that Kubernetes allows.
	mostNamed = 63 + 1 + 253 + 1 + 253
	// mostElements is the greatest number of networks of a pod, and mostNetworks has room for them with what Multus knows
	// about each. Multus itself has no limit.
	mostElements, mostNetworks = 256, 64 << 10
	// mostShown is what an error shows of a value.
	mostShown = 100
)

// limitOf is the greatest length of an annotation's value in bytes.
func limitOf(key string) int {
	switch {
	case key == networksKey, key == defaultNetworkKey:
		return mostNetworks
	case strings.HasPrefix(key, annotations) && key != ownerKey:
		return mostStatic
	}
	return mostNamed
}

// within returns an error if the value of the annotation is too long.
func within(key, value string) error {
	if most := limitOf(key); len(value) > most {
		return fmt.Errorf("%w: the pod's annotation %s=%s is longer than %d bytes: shorten it", owner.ErrInvalid, key, shown(value), most)
	}
	return nil
}

// shown is the value in quotes for an error. Of a long one it is the beginning.
func shown(value string) string {
	if len(value) <= mostShown {
		return strconv.Quote(value)
	}
	return strconv.Quote(value[:mostShown]) + " ..."
}
