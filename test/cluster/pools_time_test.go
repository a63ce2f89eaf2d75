package cluster

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/controller"
)

// fenceAfter is the shortest that the API takes. The test sets the clocks, and waits for none.
const fenceAfter = pool.MinFenceAfter

// sky is the time of all nodes and of the controller. It only goes on when the test lets it pass.
type sky struct {
	mu sync.Mutex
	at time.Duration
}

func (s *sky) uptime() (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at, nil
}

func (s *sky) now() time.Time {
	d, _ := s.uptime()
	return time.Unix(1e9, 0).Add(d)
}

func (s *sky) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at += d
}

// slow is the controller's API. The next change of a block comes late: only when the test delivers it.
type slow struct {
	pool.API
	hold bool
	held []pool.Block
}

func (s *slow) UpdateBlock(ctx context.Context, b pool.Block) (pool.Block, error) {
	if s.hold {
		s.held = append(s.held, b)
		return b, errLost
	}
	return s.API.UpdateBlock(ctx, b)
}

// silentNodes are nodes that share a pool with fenceAfter, their kubelets, and a controller.
type silentNodes struct {
	*sky
	all   []*member
	first []given // a pod of each node
	admin user
	api   *slow
	*controller.Controller
}

const nodeLease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

func (a *api) silentNodes(t *testing.T, users map[string]user) *silentNodes {
	t.Helper()
	s := &silentNodes{sky: &sky{at: time.Hour}, admin: users["admin"]}
	a.newPool(t, users, "10.11.0.0/27")
	s.admin.must(t, http.MethodPatch, pools+"/lan", m{"spec": m{"fenceAfter": fenceAfter.String()}}, nil)
	for _, name := range []string{"node1", "node2", "node3"} {
		s.admin.send(t, http.MethodDelete, nodeLease+"/"+name, m{})
		s.admin.must(t, http.MethodPost, nodeLease, m{"metadata": m{"name": name}, "spec": m{"holderIdentity": name}}, nil)
		s.all = append(s.all, a.timed(t, name, users[name], s.sky))
	}
	s.api = &slow{API: a.poolsOf(t, "controller", users["controller"])}
	s.Controller = controller.New(s.api, s.all[0].logger())
	s.SetClock(s.now)
	for _, n := range s.all {
		s.first = append(s.first, n.must(t, n.request(lease.Policy{}, "")))
		n.Attest(t.Context())
	}
	s.renew(t, s.all...)
	return s
}

// renew is what the kubelets of the nodes do. The agents read it.
func (s *silentNodes) renew(t *testing.T, nodes ...*member) {
	t.Helper()
	for _, n := range nodes {
		s.pass(time.Microsecond) // Each renewal is another one.
		s.admin.must(t, http.MethodPatch, nodeLease+"/"+n.name, m{"spec": m{"renewTime": s.now().UTC().Format("2006-01-02T15:04:05.000000Z")}}, nil)
		n.Attest(t.Context())
	}
}

// live lets time pass. These nodes live, and the controller looks.
func (s *silentNodes) live(t *testing.T, d time.Duration, nodes ...*member) {
	t.Helper()
	for range d / time.Minute {
		s.pass(time.Minute)
		s.renew(t, nodes...)
		if err := s.Reconcile(t.Context()); err != nil && !errors.Is(err, errLost) {
			t.Fatal(err)
		}
	}
}

// fences returns the reasons why the node is fenced, by block. A block without a reason is there, too.
func (a *api) fences(t *testing.T, users map[string]user, node string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, b := range a.blocksNow(t, users) {
		for _, h := range b.Spec.Holders {
			if h.Node == node {
				all[b.Metadata.Name] = h.Fenced
			}
		}
	}
	return all
}

// A node that has lost its network gives nothing new after half of the time. After the whole time others get its addresses, to be probed
// for. When it comes back, it has lost them, and takes others.
func (a *api) silentForHalf(t *testing.T, users map[string]user) {
	s := a.silentNodes(t, users)
	silent, other := s.all[2], s.all[0]
	had := map[netip.Addr]given{s.first[2].address: s.first[2]}
	for range 2 {
		p := silent.must(t, silent.request(lease.Policy{}, ""))
		had[p.address] = p
	}
	silent.api.set(0, true)
	s.live(t, fenceAfter/2-2*time.Minute, s.all[:2]...)
	p, err := silent.add(t.Context(), silent.request(lease.Policy{}, ""))
	if err != nil {
		t.Fatalf("before half of the time: %v", err)
	}
	had[p.address] = p
	s.live(t, 2*time.Minute, s.all[:2]...)
	_, err = silent.add(t.Context(), silent.request(lease.Policy{}, ""))
	if want := "relink-agent waits for the kubelet to renew the Lease kube-node-lease/node3"; !errors.Is(err, pool.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("after half of the time: %v, want %s", err, want)
	}
	silent.del(t, p) // DELs work all the time.
	delete(had, p.address)
	s.live(t, fenceAfter/2-time.Minute, s.all[:2]...)
	for block, why := range a.fences(t, users, "node3") {
		if why != "" {
			t.Errorf("%s is fenced too early: %s", block, why)
		}
	}
	s.live(t, 2*time.Minute, s.all[:2]...)
	for block, why := range a.fences(t, users, "node3") {
		if !strings.HasPrefix(why, "silent since 2001-09-09T0") || !strings.HasSuffix(why, " (spec.fenceAfter 10m0s)") {
			t.Errorf("%s: %q", block, why)
		}
	}
	got := map[netip.Addr]bool{}
	for {
		p, err := other.add(t.Context(), other.request(lease.Policy{}, ""))
		if err != nil {
			break
		}
		got[p.address] = p.probe
	}
	for address := range had {
		if probe, is := got[address]; !is || !probe {
			t.Errorf("%s of the silent node: given %v, with a probe %v", address, is, probe)
		}
	}

	silent.api.set(0, false)
	s.renew(t, silent)
	s.renew(t, silent)
	p, err = silent.add(t.Context(), silent.request(lease.Policy{}, ""))
	if _, others := got[p.address]; others || errors.Is(err, lease.ErrSilent) {
		t.Errorf("back: it gives %s, %v", p.address, err)
	}
	if want := "this node was declared dead, and pods still have addresses"; !strings.Contains(silent.log.String(), want) {
		t.Errorf("want %q in the log:\n%s", want, silent.log.String())
	}
	for _, p := range had {
		silent.del(t, p)
	}
	silent.Reconcile(t.Context())
	for block, why := range a.fences(t, users, "node3") {
		if why != "" {
			t.Errorf("after its pods have ended, %s still says: %s", block, why)
		}
	}
}

// A fence that was decided while the node was silent comes too late: the node has begun anew, and gives what it has.
func (a *api) lateFence(t *testing.T, users map[string]user) {
	s := a.silentNodes(t, users)
	silent := s.all[2]
	before := a.fences(t, users, "node3")
	silent.api.set(0, true)
	s.api.hold = true
	s.live(t, fenceAfter+2*time.Minute, s.all[:2]...)
	if len(s.api.held) == 0 {
		t.Fatal("the controller has decided nothing")
	}
	silent.api.set(0, false)
	s.renew(t, silent)
	s.renew(t, silent)
	p := silent.must(t, silent.request(lease.Policy{}, ""))
	for _, b := range s.api.held {
		if _, err := s.api.API.UpdateBlock(t.Context(), b); !errors.Is(err, pool.ErrConflict) {
			t.Errorf("the late fence of %s: %v", b.Metadata.Name, err)
		}
	}
	for _, b := range a.blocksNow(t, users) {
		if i := b.Offset(p.address); i >= 0 {
			if h, _ := b.HolderOf(i); h.Node != "node3" || !strings.HasSuffix(h.Boot, ".1") || h.FenceAfter != fenceAfter.String() {
				t.Errorf("%s has %+v, before %v", p.address, h, before)
			}
		}
	}
}
