package metrics

import (
	"math/big"
	"net/http"
	"time"

	"github.com/relink-cni/relink/pkg/pool/controller"
)

var (
	controllerTable table

	poolAddresses      = controllerTable.gauge("relink_pool_addresses", "Addresses of the AddressPool that can be given.", "pool")
	poolGranted        = controllerTable.gauge("relink_pool_granted_addresses", "Addresses of the AddressPool that nodes have. Most of them wait for pods.", "pool")
	poolBlocks         = controllerTable.gauge("relink_pool_blocks", "AddressBlocks that the AddressPool can have.", "pool")
	poolTaken          = controllerTable.gauge("relink_pool_taken_blocks", "AddressBlocks of the AddressPool that exist: nodes have addresses of them.", "pool")
	poolFenced         = controllerTable.gauge("relink_pool_fenced_holders", "Parts of AddressBlocks whose node is declared dead, and has not come back since.", "pool")
	poolStopped        = controllerTable.gauge("relink_pool_stopped", "1 if the AddressPool gives nothing new, for whatever reason, 0 otherwise.", "pool")
	poolProblem        = controllerTable.gauge("relink_pool_problem", "1 if the AddressPool gives nothing new because its spec is wrong, or because it overlaps another one, 0 otherwise.", "pool")
	poolRecovering     = controllerTable.gauge("relink_pool_recovering", "1 while the AddressPool recovers: the API has lost what nodes have. 0 otherwise.", "pool")
	poolPaused         = controllerTable.gauge("relink_pool_paused", "1 if the AddressPool is paused, 0 otherwise.", "pool")
	poolUnasserted     = controllerTable.gauge("relink_pool_unasserted_nodes", "Nodes that a recovery of the AddressPool waits for.", "pool")
	controllerLeader   = controllerTable.gauge("relink_pool_controller_leader", "1 if this process is the controller that works, 0 if it waits.")
	controllerLastLook = controllerTable.gauge("relink_pool_controller_last_look_timestamp_seconds", "When the controller looked at all AddressPools last.")
)

// Controller is what keeps pools as a whole: a controller.Controller. Several goroutines call it at once.
type Controller interface {
	Seen() (found []controller.Observation, lastLook time.Time, leads bool)
}

// ControllerHandler answers with all metrics of a controller of this version.
func ControllerHandler(version string, c Controller) http.Handler {
	r := newRegistry("relink_pool_controller_build_info", "The version of relink-agent that runs as the controller. The value is 1.", version)
	r.MustRegister(collector{controllerTable, func(show show) { showController(c, show) }})
	return handler(r)
}

func showController(c Controller, show show) {
	found, lastLook, leads := c.Seen()
	show(controllerLeader, boolValue(leads))
	if !lastLook.IsZero() {
		show(controllerLastLook, timestamp(lastLook))
	}
	for _, l := range found {
		addresses, _ := new(big.Int).SetString(l.Status.Addresses, 10)
		if addresses == nil {
			addresses = new(big.Int) // A pool with a wrong spec has none.
		}
		show(poolAddresses, nearestFloat(addresses), l.Pool)
		show(poolGranted, float64(l.Status.Granted), l.Pool)
		show(poolBlocks, float64(l.Status.Blocks), l.Pool)
		show(poolTaken, float64(l.Status.Existing), l.Pool)
		show(poolFenced, float64(l.Fenced), l.Pool)
		show(poolStopped, boolValue(l.Stopped), l.Pool)
		show(poolProblem, boolValue(l.Status.Problem != ""), l.Pool)
		show(poolRecovering, boolValue(l.Recovering), l.Pool)
		show(poolPaused, boolValue(l.Paused), l.Pool)
		show(poolUnasserted, float64(l.Unasserted), l.Pool)
	}
}
