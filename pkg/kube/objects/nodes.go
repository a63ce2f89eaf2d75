package objects

import (
	"context"
	"slices"

	"github.com/relink-cni/relink/pkg/pool"
)

// Nodes are the nodes of Kubernetes.
var Nodes = Kind{"", "Node", "nodes", []string{"v1"}, Whole}

// Node is what counts of a Node.
type Node struct {
	Metadata pool.Meta `json:"metadata"`
	Spec     struct {
		Taints []taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		Conditions []condition `json:"conditions"`
		NodeInfo   struct {
			BootID string `json:"bootID"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

type taint struct {
	Key string `json:"key"`
}

type condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// PoolNode returns what counts of the node for pools.
func (n Node) PoolNode() pool.Node {
	out := slices.ContainsFunc(n.Spec.Taints, func(t taint) bool { return t.Key == "node.kubernetes.io/out-of-service" })
	ready := slices.Contains(n.Status.Conditions, condition{"Ready", "True"})
	return pool.Node{Name: n.Metadata.Name, UID: n.Metadata.UID, OutOfService: out, Ready: ready, Boot: n.Status.NodeInfo.BootID, Labels: n.Metadata.Labels}
}

// Node implements pool.API.
func (p PoolAPI) Node(ctx context.Context, name string) (pool.Node, error) {
	n, err := one[Node](ctx, p, request{Kind: Nodes, verb: "get", name: name})
	return n.PoolNode(), err
}

// SetDrained sets the node's pool.DrainLabel, or removes it. The error matches ErrNotFound if there is no such node.
func (p PoolAPI) SetDrained(ctx context.Context, name string, drained bool) error {
	labels := map[string]any{pool.DrainLabel: nil} // nil removes it.
	if drained {
		labels[pool.DrainLabel] = ""
	}
	_, err := one[Node](ctx, p, request{Kind: Nodes, verb: "patch", name: name, body: map[string]any{"metadata": map[string]any{"labels": labels}}})
	return err
}

// Nodes implements pool.API.
func (p PoolAPI) Nodes(ctx context.Context) (poolNodes []pool.Node, err error) {
	items, err := list[Node](ctx, p, request{Kind: Nodes})
	for _, n := range items {
		poolNodes = append(poolNodes, n.PoolNode())
	}
	return poolNodes, err
}
