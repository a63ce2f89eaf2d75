package objects

import (
	"context"
	"slices"

	"github.com/relink-cni/relink/pkg/pool"
)

var nodes = Kind{"", "Node", "nodes", []string{"v1"}, Whole}

// node is what counts of a Node.
type node struct {
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

func (n node) poolNode() pool.Node {
	out := slices.ContainsFunc(n.Spec.Taints, func(t taint) bool { return t.Key == "node.kubernetes.io/out-of-service" })
	ready := slices.Contains(n.Status.Conditions, condition{"Ready", "True"})
	return pool.Node{Name: n.Metadata.Name, UID: n.Metadata.UID, OutOfService: out, Ready: ready, Boot: n.Status.NodeInfo.BootID}
}

// Node implements pool.API.
func (p PoolAPI) Node(ctx context.Context, name string) (pool.Node, error) {
	n, err := one[node](ctx, p, request{Kind: nodes, verb: "get", name: name})
	return n.poolNode(), err
}

// Nodes implements pool.API.
func (p PoolAPI) Nodes(ctx context.Context) (poolNodes []pool.Node, err error) {
	items, err := list[node](ctx, p, request{Kind: nodes})
	for _, n := range items {
		poolNodes = append(poolNodes, n.poolNode())
	}
	return poolNodes, err
}
