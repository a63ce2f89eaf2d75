package kube

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/relink-cni/relink/pkg/pool"
)

var nodes = kind{"", "Node", "nodes", []string{"v1"}, wholeObject}

// node is what counts of a Node.
type node struct {
	Metadata pool.Meta `json:"metadata"`
	Spec     struct {
		Taints []corev1.Taint `json:"taints"`
	} `json:"spec"`
}

func (n node) known() pool.Node {
	return pool.Node{Name: n.Metadata.Name, UID: n.Metadata.UID, OutOfService: slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeOutOfService
	})}
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
