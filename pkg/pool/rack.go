package pool

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// orSeparator is in no name of a pool.
const orSeparator = "|"

// Choice is what stands in a list of pools for the one of these that selects the node. A name is a choice of one.
func Choice(names ...string) string { return strings.Join(names, orSeparator) }

// IsChoice says whether it is a choice of several pools.
func IsChoice(name string) bool { return strings.Contains(name, orSeparator) }

// Candidates returns the names of the pools in a choice.
func Candidates(choice string) []string { return strings.Split(choice, orSeparator) }

// Choose returns the pool of the choice that selects the node. The error matches ErrUnknown: none does, or more than one. pools are all pools.
func Choose(choice string, pools []Pool, n Node) (string, error) {
	var chosen, reasons []string
	for _, name := range Candidates(choice) {
		i := slices.IndexFunc(pools, func(p Pool) bool { return p.Metadata.Name == name })
		if i < 0 {
			reasons = append(reasons, "there is no AddressPool "+name)
		} else if pools[i].Metadata.DeletionTimestamp != "" { // The next one can be there already.
			reasons = append(reasons, fmt.Sprintf("the pool %s is being deleted", name))
		} else if reason := pools[i].Mismatch(n); reason != "" {
			reasons = append(reasons, fmt.Sprintf("the pool %s %s", name, reason))
		} else {
			chosen = append(chosen, name)
		}
	}
	switch len(chosen) {
	case 0:
		return "", fmt.Errorf(`%w: of the pools in "oneOf" none is for this node: %s: correct spec.nodeSelector or the labels of the node`, ErrUnknown, strings.Join(reasons, "; "))
	case 1:
		return chosen[0], nil
	}
	return "", fmt.Errorf(`%w: the pools %s in "oneOf" are all for node %s, and it can take only one: correct spec.nodeSelector or the labels of the node`, ErrUnknown, strings.Join(chosen, " and "), n.Name)
}

// Mismatch says why the pool is not for the node, empty if it is.
func (p Pool) Mismatch(n Node) string {
	if reason := n.LeaveReason(); reason != "" {
		return fmt.Sprintf("is not for node %s: %s", n.Name, reason)
	}
	var differences []string
	for _, key := range slices.Sorted(maps.Keys(p.Spec.NodeSelector)) {
		switch value, found := n.Labels[key]; {
		case !found:
			differences = append(differences, "no label "+key)
		case value != p.Spec.NodeSelector[key]:
			differences = append(differences, key+"="+value)
		}
	}
	if len(differences) == 0 {
		return ""
	}
	return fmt.Sprintf("is for nodes with %s, and node %s has %s", p.Selector(), n.Name, strings.Join(differences, " and "))
}

// Selector returns the labels that the pool selects, as people write them.
func (p Pool) Selector() string {
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(p.Spec.NodeSelector)) {
		labels = append(labels, key+"="+p.Spec.NodeSelector[key])
	}
	return strings.Join(labels, ",")
}
