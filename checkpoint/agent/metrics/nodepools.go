package metrics

import (
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

var (
	nodeAddresses = storeTable.gauge("relink_pool_node_addresses", "Addresses of the AddressPool that this node has, by state: given without a probe, given after a probe, or on the way back to the pool.", "pool", "network", "state")
	nodeUsed      = storeTable.gauge("relink_pool_node_used_addresses", "Addresses of the AddressPool that this node has and that are held, reserved, or quarantined.", "pool", "network")
	nodeTarget    = storeTable.gauge("relink_pool_node_target_addresses", "How many addresses of the AddressPool this node should have: those in use, and a reserve.", "pool", "network")
	nodeLost      = storeTable.gauge("relink_pool_node_lost_addresses", "Addresses of the AddressPool that pods of this node hold, and that this node does not have: other nodes may give them.", "pool", "network")
	nodeConfirmed = storeTable.gauge("relink_pool_node_confirmed", "1 if the agent has read the network's AddressPools since the node's boot, 0 if not. Before that, the node gives nothing of them.", "network")

	nodePoolTable  table
	poolLastAnswer = nodePoolTable.gauge("relink_pool_api_last_answer_timestamp_seconds", "When the Kubernetes API answered a question about pools last. Before the first answer it is the start of the agent.")
)

// showGranted shows what the network has of the pools that nodes share. A network without such pools shows nothing.
func (n *network) showGranted(name string, show show) {
	if n.granted.ID == "" {
		return
	}
	show(nodeConfirmed, boolValue(n.granted.Confirmed), name)
	for _, p := range n.granted.Pools {
		sure, probed, marked := 0, 0, 0
		for _, g := range p.Grants {
			sure += len(g.Offsets(string(pool.GrantedMark)))
			probed += len(g.Offsets(string(pool.GrantedUnproven)))
			marked += len(g.Offsets(string(pool.Marked)))
		}
		lost := len(p.Lost())
		if !p.Named && sure+probed+marked+lost == 0 {
			continue // The network had it once.
		}
		show(nodeAddresses, float64(sure), p.Name, name, "gives")
		show(nodeAddresses, float64(probed), p.Name, name, "gives_probed")
		show(nodeAddresses, float64(marked), p.Name, name, "given_back")
		show(nodeUsed, float64(p.Used), p.Name, name)
		show(nodeTarget, float64(p.Target()), p.Name, name)
		show(nodeLost, float64(lost), p.Name, name)
	}
}

// NodeController is this node's part of the pools that nodes share: a node.Controller. Several goroutines call it at once.
type NodeController interface {
	// LastAnswer returns when the API answered last. uses says whether a network of this node has a pool.
	LastAnswer() (lastAnswer time.Time, uses bool)
}

// RegisterNodeController adds what the controller does to the metrics. Call it once. A node without pools asks the API seldom,
// so it does not show when.
func (m *Metrics) RegisterNodeController(k NodeController) {
	m.registry.MustRegister(collector{nodePoolTable, func(show show) {
		if lastAnswer, uses := k.LastAnswer(); uses {
			show(poolLastAnswer, timestamp(lastAnswer))
		}
	}})
}
