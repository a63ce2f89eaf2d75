package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/relink-cni/relink/pkg/pool"
)

var (
	nodeHas       = desc("relink_pool_node_addresses", "Addresses of the AddressPool that this node has, by state: given without a probe, given after a probe, or on the way back to the pool.", "pool", "network", "state")
	nodeUsed      = desc("relink_pool_node_used_addresses", "Addresses of the AddressPool that this node has and that are held, reserved, or quarantined.", "pool", "network")
	nodeTarget    = desc("relink_pool_node_target_addresses", "How many addresses of the AddressPool this node should have: those in use, and a reserve.", "pool", "network")
	nodeLost      = desc("relink_pool_node_lost_addresses", "Addresses of the AddressPool that pods of this node hold, and that this node does not have: other nodes may give them.", "pool", "network")
	nodeConfirmed = desc("relink_pool_node_confirmed", "1 if the agent has read the network's AddressPools since the node's boot, 0 if not. Before that, the node gives nothing of them.", "network")

	poolWrites  = desc("relink_pool_writes_total", "Changes of AddressBlocks and AddressClaims that the agent has made in the Kubernetes API.")
	poolContact = desc("relink_pool_api_last_answer_timestamp_seconds", "When the Kubernetes API answered a question about pools last. Before the first answer it is the start of the agent.")
)

// collectGranted shows what the network has of the pools that nodes share. A network without such pools shows nothing.
func (n *network) collectGranted(name string, gauge func(*prometheus.Desc, float64, ...string)) {
	if n.granted.ID == "" {
		return
	}
	gauge(nodeConfirmed, number(n.granted.Confirmed), name)
	for _, p := range n.granted.Pools {
		sure, probed, marked := 0, 0, 0
		for _, g := range p.Grants {
			sure += len(g.Offsets(string(pool.Gives)))
			probed += len(g.Offsets(string(pool.GivesProbed)))
			marked += len(g.Offsets(string(pool.Marked)))
		}
		lost := len(p.Lost())
		if !p.Named && sure+probed+marked+lost == 0 {
			continue // The network had it once.
		}
		gauge(nodeHas, float64(sure), p.Name, name, "gives")
		gauge(nodeHas, float64(probed), p.Name, name, "gives_probed")
		gauge(nodeHas, float64(marked), p.Name, name, "given_back")
		gauge(nodeUsed, float64(p.Used), p.Name, name)
		gauge(nodeTarget, float64(p.Target()), p.Name, name)
		gauge(nodeLost, float64(lost), p.Name, name)
	}
}

// Keeper is this node's part of the pools that nodes share: a keeper.Keeper. Several goroutines call it at once.
type Keeper interface {
	// Writes returns how many changes of blocks and claims it has made.
	Writes() int
	// LastAnswer returns when the API answered last. uses says whether a network of this node has a pool.
	LastAnswer() (at time.Time, uses bool)
}

// ShowKeeper adds what the keeper does to the metrics. Call it once.
func (m *Metrics) ShowKeeper(k Keeper) { m.registry.MustRegister(keeping{k}) }

// keeping shows a keeper.
type keeping struct{ Keeper }

// Describe implements prometheus.Collector.
func (keeping) Describe(to chan<- *prometheus.Desc) {
	to <- poolWrites
	to <- poolContact
}

// Collect implements prometheus.Collector. A node without pools asks the API seldom, so it does not show when.
func (k keeping) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(poolWrites, prometheus.CounterValue, float64(k.Writes()))
	if at, uses := k.LastAnswer(); uses {
		to <- prometheus.MustNewConstMetric(poolContact, prometheus.GaugeValue, timestamp(at))
	}
}
