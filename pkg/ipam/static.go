package ipam

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
)

// staticConfig is "static": who may ask for an address. Whoever may write a pod can write an annotation. In a cluster that
// is shared, the network says whose pods may choose.
type staticConfig struct {
	// Namespaces are those whose pods may ask. Nil stands for all.
	Namespaces *[]string `json:"namespaces"`
}

// problems returns an error for each name that no namespace can have.
func (c *staticConfig) problems() (errs []error) {
	if c == nil || c.Namespaces == nil {
		return nil
	}
	for i, name := range *c.Namespaces {
		if err := (attachment.Pod{Namespace: name, Name: "any"}).Validate(); err != nil {
			errs = append(errs, cniplugin.ConfigError(fmt.Sprintf("ipam.static.namespaces[%d]", i), name, "must be the name of a namespace: "+err.Error()))
		}
	}
	return errs
}

// allows says whether a pod of the namespace may ask for an address.
func (c *staticConfig) allows(namespace string) bool {
	return c == nil || c.Namespaces == nil || slices.Contains(*c.Namespaces, namespace)
}

// checkStatic returns an error if the pod asks for an address and must not. An IPAMClaim's addresses were given by the network
// before.
func (n network) checkStatic() error {
	if n.Static.allows(n.pod.Namespace) {
		return nil
	}
	for _, q := range append(slices.Clone(n.requested), n.candidates...) {
		if !q.fromClaim {
			return q.refuse(fmt.Sprintf("cannot be given: pods of the namespace %q may not ask for an address of this network (%q)", n.pod.Namespace, "ipam.static.namespaces"))
		}
	}
	return nil
}
