package metrics

import (
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// nodeStates are the states of an address in the grants of a node, by the label state.
var nodeStates = map[string]rune{"gives": pool.GrantedMark, "gives_probed": pool.GrantedUnproven, "given_back": pool.Marked}

// showGranted shows what the network has of the pools that nodes share. A network without such pools shows nothing.
func (n network) showGranted(p page) {
	if n.granted.ID == "" {
		return
	}
	gauge(p, "relink_pool_node_confirmed", "1 if the agent has read the network's AddressPools since the node's boot, 0 if not. Before that, the node gives nothing of them.", n.granted.Confirmed)
	for _, part := range n.granted.Pools {
		lost := len(part.Lost())
		counts, total := map[string]int{}, lost
		for state, mark := range nodeStates {
			for _, g := range part.Grants {
				counts[state] += len(g.Offsets(string(mark)))
			}
			total += counts[state]
		}
		if !part.Named && total == 0 {
			continue // The network had it once.
		}
		p := p.with("pool", part.Name)
		for state, count := range counts {
			gauge(p.with("state", state), "relink_pool_node_addresses", "Addresses of the AddressPool that this node has, by state: given without a probe, given after a probe, or on the way back to the pool.", count)
		}
		gauge(p, "relink_pool_node_used_addresses", "Addresses of the AddressPool that this node has and that are held, reserved, or quarantined.", part.Used)
		gauge(p, "relink_pool_node_target_addresses", "How many addresses of the AddressPool this node should have: those in use, and a reserve.", part.Target())
		gauge(p, "relink_pool_node_lost_addresses", "Addresses of the AddressPool that pods of this node hold, and that this node does not have: other nodes may give them.", lost)
	}
}

// RegisterNodeController adds when the API answered a question about pools last. uses says whether a network of this node has a
// pool: a node without pools asks the API seldom, so it does not show when. Several goroutines call lastAnswer at once. Call
// RegisterNodeController once.
func (m *Metrics) RegisterNodeController(lastAnswer func() (instant time.Time, uses bool)) {
	m.registry.MustRegister(collector(func(p page) {
		if instant, uses := lastAnswer(); uses {
			gauge(p, "relink_pool_api_last_answer_timestamp_seconds", "When the Kubernetes API answered a question about pools last. Before the first answer it is the start of the agent.", instant)
		}
	}))
}
