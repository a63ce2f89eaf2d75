package objects

import (
	"context"
	"slices"

	"github.com/relink-cni/relink/pkg/pool"
)

var (
	nodes      = Kind{"", "Node", "nodes", []string{"v1"}, Whole}
	nodeLeases = Kind{"coordination.k8s.io", "Lease", "leases", []string{"v1"}, Whole}
)

// leaseNamespace is where the kubelets' Leases are.
const leaseNamespace = "kube-node-lease"

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

// nodeLease is what counts of a Lease.
type nodeLease struct {
	Metadata pool.Meta `json:"metadata"`
	Spec     struct {
		RenewTime string `json:"renewTime"`
	} `json:"spec"`
}

func (l nodeLease) poolLease() pool.NodeLease {
	return pool.NodeLease{Node: l.Metadata.Name, UID: l.Metadata.UID, Version: l.Metadata.ResourceVersion, Renewed: l.Spec.RenewTime}
}

// NodeLease implements pool.API.
func (p PoolAPI) NodeLease(ctx context.Context, node string) (pool.NodeLease, error) {
	l, err := one[nodeLease](ctx, p, request{Kind: nodeLeases, verb: "get", namespace: leaseNamespace, name: node})
	return l.poolLease(), err
}

// NodeLeases implements pool.API.
func (p PoolAPI) NodeLeases(ctx context.Context) (leases []pool.NodeLease, err error) {
	items, err := list[nodeLease](ctx, p, request{Kind: nodeLeases, namespace: leaseNamespace})
	for _, l := range items {
		leases = append(leases, l.poolLease())
	}
	return leases, err
}
