package crash

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/relink-cni/relink/pkg/ipam/delegate"
)

// leased is like held, for a node with the delegate relink-ipam. It also checks that the leases are sound.
func (n *node) leased(t *testing.T) []string {
	t.Helper()
	p := &pool{dir: n.leases(), network: "lan"}
	p.sound(t)
	var ids []string
	for _, l := range p.list(t) {
		ids = append(ids, holderIDs(l)...)
	}
	slices.Sort(ids)
	return ids
}

// ipamCall is a way in which relink-macvlan calls relink-ipam. It says which of the two is killed.
type ipamCall struct {
	env                 []string
	programs, delegates string
	killsDelegate       bool
	// meanwhile happens between the kill and the next DEL.
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

// No interface, checkpoint or address is left, whichever program is killed at whichever step.
func TestAddWithRelinkIPAMKilledAtEveryStep(t *testing.T) { eachIPAMCall(t, addOfPod) }
func TestDelWithRelinkIPAMKilledAtEveryStep(t *testing.T) { eachIPAMCall(t, delOfPod) }

// newNode returns a node that calls relink-ipam in this way, with more keys.
func (c ipamCall) newNode(t *testing.T, keys string) *node {
	t.Helper()
	n := newNode(t)
	n.env, n.programs, n.delegates = c.env, c.programs, c.delegates
	n.ipam = fmt.Sprintf(`{"type": "relink-ipam", "dataDir": %q, %s"ranges": [[{"subnet": "10.9.0.0/16"}]], "routes": [{"dst": "10.0.0.0/8"}]}`, n.leases(), keys)
	return n
}

func eachIPAMCall(t *testing.T, of func(func(*testing.T) *pod, []string) operation) {
	for name, call := range ipamCalls() {
		t.Run(name, func(t *testing.T) {
			n := call.newNode(t, "")
			withEach(t, call.meanwhile, func(t *testing.T, what []string) {
				o := of(func(t *testing.T) *pod {
					must(t, os.RemoveAll(n.leases())) // The first ADD makes the store.
					return n.newPod(t, "c1", false)
				}, what)
				o.delegate = call.killsDelegate
				o.killAtEveryStep(t)
			})
		})
	}
}

// A pod's next sandbox takes over the address of the earlier one. Wherever the ADD is killed, the earlier sandbox still
// has the address. At no time has nobody or another pod it.
func TestTakeoverKilledAtEveryStep(t *testing.T) {
	for name, call := range ipamCalls() {
		t.Run(name, func(t *testing.T) {
			o := takeoverOn(call.newNode(t, sticky))
			o.delegate = call.killsDelegate
			o.killAtEveryStep(t)
		})
	}
}

// takeoverOn is the ADD of a pod's second sandbox.
func takeoverOn(n *node) operation {
	var was, is, other *pod
	of := func(t *testing.T, id, name string) *pod {
		p := n.newPod(t, id, false)
		p.name = name
		return p
	}
	return operation{
		prepare: func(t *testing.T) *exec.Cmd {
			must(t, os.RemoveAll(n.leases()))
			was, is, other = of(t, "c1", "web-0"), of(t, "c2", "web-0"), of(t, "c3", "other")
			must(t, was.add())
			return is.plugin("relink-macvlan", "ADD", "")
		},
		after: func(t *testing.T) {
			// The earlier sandbox still exists, so it keeps its hold, whatever happened to the next one.
			was.holds(t, true)
			must(t, is.del())
			is.gone(t)
			n.isHeldBy(t, "c1")
			was.holds(t, true)
			must(t, other.add())
			n.isHeldBy(t, "c1", "c3")
			must(t, is.add())
			n.isHeldBy(t, "c1", "c2", "c3")
			// The DEL comes late, and more than once.
			for range 2 {
				must(t, was.del())
				was.gone(t)
				n.isHeldBy(t, "c2", "c3")
				is.holds(t, true)
			}
			must(t, is.del())
			must(t, other.del())
			is.gone(t)
			n.isHeldBy(t)
		},
	}
}

// webAddress is the address of web-0.
var webAddress = netip.MustParseAddr("10.9.0.2")

// isHeldBy checks who holds the addresses. The sandboxes of web-0 hold its address. The other pod holds another one.
func (n *node) isHeldBy(t *testing.T, ids ...string) {
	t.Helper()
	if got := n.leased(t); !slices.Equal(got, ids) {
		t.Errorf("addresses are held by %v, want %v", got, ids)
	}
	p := &pool{dir: n.leases(), network: "lan"}
	l, err := p.store(t).Get(t.Context(), webAddress)
	if err != nil || l.Owner != owner("web-0") || slices.Contains(holderIDs(l), "c3") {
		t.Errorf("the pod's address: %+v, %v", l, err)
	}
}

// holds expects relink-ipam's CHECK to find, or with false not to find, that the pod holds its address.
func (p *pod) holds(t *testing.T, want bool) {
	t.Helper()
	if _, err := output(p.plugin("relink-ipam", "CHECK", "")); (err == nil) != want {
		t.Errorf("CHECK of %s: %v", p.id, err)
	}
}
