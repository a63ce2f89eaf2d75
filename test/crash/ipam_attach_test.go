package crash

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/delegate"
)

// leased is held for a node whose delegate is relink-ipam, and says that the leases are
// sound.
func (n *node) leased(t *testing.T) []string {
	t.Helper()
	p := &pool{dir: n.leases(), network: "lan"}
	p.sound(t)
	var ids []string
	for _, l := range p.list(t) {
		if l.State == ipam.Held {
			ids = append(ids, l.Attachment.ContainerID)
		}
	}
	slices.Sort(ids)
	return ids
}

// ipamCall is a way in which relink-macvlan calls relink-ipam, and who of them is
// killed.
type ipamCall struct {
	env                 []string
	programs, delegates string
	killsDelegate       bool
	// meanwhile is what comes between the kill and the next DEL.
	meanwhile []string
}

func ipamCalls() map[string]ipamCall {
	executed := []string{delegate.ExecEnv + "=1"}
	return map[string]ipamCall{
		"in process":                 {nil, bin, released, false, []string{"nothing", "capture"}},
		"executed":                   {executed, bin, released, false, []string{"nothing"}},
		"executed and itself killed": {executed, released, bin, true, []string{"nothing"}},
	}
}

// Neither interface nor checkpoint nor address is left, whoever is killed and wherever.
func TestAddWithRelinkIPAMKilledAtEveryStep(t *testing.T) { eachIPAMCall(t, addOfPod) }
func TestDelWithRelinkIPAMKilledAtEveryStep(t *testing.T) { eachIPAMCall(t, delOfPod) }

func eachIPAMCall(t *testing.T, of func(func(*testing.T) *pod, string) operation) {
	for name, call := range ipamCalls() {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.env, n.programs, n.delegates = call.env, call.programs, call.delegates
			n.ipam = fmt.Sprintf(`{"type": "relink-ipam", "dataDir": %q, "ranges": [[{"subnet": "10.9.0.0/16"}]], "routes": [{"dst": "10.0.0.0/8"}]}`, n.leases())
			for _, what := range call.meanwhile {
				t.Run(what, func(t *testing.T) {
					o := of(func(t *testing.T) *pod {
						must(t, os.RemoveAll(n.leases())) // The store is made by the first ADD.
						return n.newPod(t, "c1", false)
					}, what)
					o.delegate = call.killsDelegate
					o.killAtEveryStep(t)
				})
			}
		})
	}
}
