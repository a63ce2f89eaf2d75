package kube

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/relink-cni/relink/pkg/pool"
)

var (
	nodes      = kind{"", "Node", "nodes", []string{"v1"}, wholeObject}
	nodeLeases = kind{"coordination.k8s.io", "Lease", "leases", []string{"v1"}, wholeObject}
)

// namespaceOf is where the API has the objects of the kind that count here, empty for kinds without a namespace.
func namespaceOf(k kind) string {
	if k.resource == nodeLeases.resource {
		return corev1.NamespaceNodeLease
	}
	return ""
}

// node is what counts of a Node.
type node struct {
	Metadata pool.Meta `json:"metadata"`
	Spec     struct {
		Taints []corev1.Taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		Conditions []corev1.NodeCondition `json:"conditions"`
		NodeInfo   struct {
			BootID string `json:"bootID"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

func (n node) known() pool.Node {
	out := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return pool.Node{Name: n.Metadata.Name, UID: n.Metadata.UID, OutOfService: out, Ready: ready, Boot: n.Status.NodeInfo.BootID}
}

// Node implements pool.API.
func (p Pools) Node(ctx context.Context, name string) (pool.Node, error) {
	var n node
	err := p.get(ctx, nodes, name, &n)
	return n.known(), err
}

// Nodes implements pool.API.
func (p Pools) Nodes(ctx context.Context) (all []pool.Node, err error) {
	made, err := list[node](ctx, p, nodes, selector{})
	for _, n := range made {
		all = append(all, n.known())
	}
	return all, err
}

// nodeLease is what counts of a Lease.
type nodeLease struct {
	Metadata pool.Meta `json:"metadata"`
	Spec     struct {
		RenewTime string `json:"renewTime"`
	} `json:"spec"`
}

func (l nodeLease) known() pool.NodeLease {
	return pool.NodeLease{Node: l.Metadata.Name, UID: l.Metadata.UID, Version: l.Metadata.ResourceVersion, Renewed: l.Spec.RenewTime}
}

// NodeLease implements pool.API.
func (p Pools) NodeLease(ctx context.Context, node string) (pool.NodeLease, error) {
	var l nodeLease
	err := p.get(ctx, nodeLeases, node, &l)
	return l.known(), err
}

// NodeLeases implements pool.API.
func (p Pools) NodeLeases(ctx context.Context) (all []pool.NodeLease, err error) {
	made, err := list[nodeLease](ctx, p, nodeLeases, selector{})
	for _, l := range made {
		all = append(all, l.known())
	}
	return all, err
}
