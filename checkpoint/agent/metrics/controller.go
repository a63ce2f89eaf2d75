package metrics

import (
	"math/big"
	"net/http"
	"time"

	"github.com/relink-cni/relink/pkg/pool/controller"
)

// ControllerHandler answers with all metrics of a controller of this version. seen is controller.Controller's. Several goroutines call it
// at once.
func ControllerHandler(version string, seen func() (found []controller.Observation, lastLook time.Time, leads bool)) http.Handler {
	r := newRegistry("relink_pool_controller_build_info", "The version of relink-agent that runs as the controller. The value is 1.", version)
	r.MustRegister(collector(func(p page) {
		found, lastLook, leads := seen()
		showController(p, found, lastLook, leads)
	}))
	return r.handler()
}

func showController(p page, found []controller.Observation, lastLook time.Time, leads bool) {
	gauge(p, "relink_pool_controller_leader", "1 if this process is the controller that works, 0 if it waits.", leads)
	gauge(p, "relink_pool_controller_last_look_timestamp_seconds", "When the controller looked at all AddressPools last.", lastLook)
	for _, o := range found {
		addresses, _ := new(big.Int).SetString(o.Status.Addresses, 10)
		if addresses == nil {
			addresses = new(big.Int) // A pool with a wrong spec has none.
		}
		shown := p.with("pool", o.Pool)
		gauge(shown, "relink_pool_addresses", "Addresses of the AddressPool that can be given.", addresses)
		gauge(shown, "relink_pool_granted_addresses", "Addresses of the AddressPool that nodes have. Most of them wait for pods.", o.Status.Granted)
		gauge(shown, "relink_pool_blocks", "AddressBlocks that the AddressPool can have.", o.Status.Blocks)
		gauge(shown, "relink_pool_taken_blocks", "AddressBlocks of the AddressPool that exist: nodes have addresses of them.", o.Status.Existing)
		gauge(shown, "relink_pool_fenced_holders", "Parts of AddressBlocks whose node is declared dead, and has not come back since.", o.Fenced)
		gauge(shown, "relink_pool_stopped", "1 if the AddressPool gives nothing new, for whatever reason, 0 otherwise.", o.Stopped)
		gauge(shown, "relink_pool_problem", "1 if the AddressPool gives nothing new because its spec is wrong, or because it overlaps another one, 0 otherwise.", o.Status.Problem() != "")
		gauge(shown, "relink_pool_recovering", "1 while the AddressPool recovers: the API has lost what nodes have. 0 otherwise.", o.Recovering)
		gauge(shown, "relink_pool_paused", "1 if the AddressPool is paused, 0 otherwise.", o.Paused)
		gauge(shown, "relink_pool_unasserted_nodes", "Nodes that a recovery of the AddressPool waits for.", o.Unasserted)
	}
}
