package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/relink-cni/relink/pkg/attachment"
)

// workload is what controllers and a kubelet do with one thing in the API and its pods. Its steps come one after the other.
type workload interface {
	step(r *rand.Rand)
	// finish deletes everything. settled waits until its sandboxes have ended.
	finish(r *rand.Rand)
	settled()
}

// pod is a pod in the API, and the sandbox that it has at present.
type pod struct {
	made
	*cell
	owner attachment.Owner
	// lasts and shared are those of the owner.
	lasts, shared bool
}

// crew has the ends of sandboxes that go on while the workload does other things.
type crew struct {
	*chaos
	late sync.WaitGroup
}

// newPod makes a pod. The owner is nil for one that is its own.
func (c *crew) newPod(name string, of *attachment.Owner, shared bool, parts ...m) *pod {
	p := &pod{made: c.make("Pod", name, onNode1(parts...)), lasts: of != nil, shared: shared}
	if of != nil {
		p.owner = *of
	} else {
		p.owner = itself(p.made).Owner
		c.truth.lives(p.owner)
	}
	return p
}

// ensure gives the pod a sandbox, unless it has one. If that fails, a later step tries again.
func (c *crew) ensure(r *rand.Rand, p *pod) {
	if p.cell != nil {
		return
	}
	b := &cell{of: p.owner, lasts: p.lasts, shared: p.shared, pod: podOf(p.made), macvlan: r.IntN(4) == 0}
	if c.run(r, b) {
		p.cell = b
	}
}

// leave ends the pod's sandbox, now or while other things go on.
func (c *crew) leave(r *rand.Rand, p *pod) {
	b := p.cell
	if p.cell = nil; b == nil {
		return
	}
	c.truth.locked(func() { b.ending = true })
	if r.IntN(3) == 0 {
		c.end(r, b)
		return
	}
	own := rand.New(rand.NewPCG(r.Uint64(), 0))
	c.late.Go(func() { c.end(own, b) })
}

// drop deletes the pod. Its sandbox ends some time.
func (c *crew) drop(r *rand.Rand, p *pod) {
	if !p.lasts {
		c.truth.goes(p.owner)
	}
	c.delete(p.made)
	c.leave(r, p)
}

// set is a StatefulSet of Kubernetes or OpenKruise.
type set struct {
	crew
	kind, name string
	made       made
	// start, replicas and reserved say which ordinals it has. reserved is of OpenKruise.
	start, replicas int
	reserved        []int
	// addresses are those of its annotation, empty for none.
	addresses string
	pods      map[int]*pod
}

// ordinals are those that the set has.
func (s *set) ordinals() (all []int) {
	for i := s.start; len(all) < s.replicas; i++ {
		if !slices.Contains(s.reserved, i) {
			all = append(all, i)
		}
	}
	return all
}

func (s *set) of(ordinal int) attachment.Owner {
	return lasting(s.made, attachment.OrdinalOf(ordinal)).Owner
}

func (s *set) spec() m {
	spec := m{"replicas": s.replicas, "ordinals": m{"start": s.start}}
	if s.kind != "StatefulSet.apps" {
		spec["reserveOrdinals"] = s.reserved
	}
	return spec
}

func (s *set) step(r *rand.Rand) {
	switch n := r.IntN(20); {
	case s.made.uid == "":
		s.made = s.make(s.kind, s.name, setSpec(s.name, s.spec()))
	case n == 0:
		s.finish(r)
		return
	case n < 7:
		s.scale(r)
	case n < 15:
		if p := oneOf(r, s.pods); p != nil { // The pod is made anew: it has another UID.
			s.drop(r, p)
			if delete(s.pods, ordinalIn(p.name)); r.IntN(8) == 0 {
				s.rest(r) // The node has no room for it for a while.
			}
		}
	default:
		if p := oneOf(r, s.pods); p != nil { // Its sandbox dies, and the pod gets another one.
			s.leave(r, p)
		}
	}
	s.reconcile(r)
}

// scale changes which ordinals there are.
func (s *set) scale(r *rand.Rand) {
	before := s.ordinals()
	s.replicas, s.start, s.reserved = r.IntN(4), 0, []int{}
	if s.addresses == "" && r.IntN(4) == 0 { // A start that moves gives each replica of an annotation another address.
		s.start = r.IntN(3)
	}
	if s.kind != "StatefulSet.apps" && r.IntN(2) == 0 {
		s.reserved = append(s.reserved, r.IntN(3))
	}
	for _, ordinal := range before {
		if !slices.Contains(s.ordinals(), ordinal) {
			s.truth.goes(s.of(ordinal))
		}
	}
	s.patch(s.made.path(), m{"spec": s.spec()})
}

// reconcile does what the controller and the kubelet do.
func (s *set) reconcile(r *rand.Rand) {
	wanted := s.ordinals()
	for _, ordinal := range sorted(s.pods) {
		if !slices.Contains(wanted, ordinal) {
			s.drop(r, s.pods[ordinal])
			delete(s.pods, ordinal)
		}
	}
	for _, ordinal := range wanted {
		owner := s.of(ordinal)
		s.truth.lives(owner)
		if s.pods[ordinal] == nil {
			parts := by(s.made)
			if s.addresses != "" {
				parts = with(parts, annotated("ipam.relink.dev/"+network, s.addresses))
			}
			s.pods[ordinal] = s.newPod(fmt.Sprintf("%s-%d", s.name, ordinal), &owner, false, parts)
		}
		s.ensure(r, s.pods[ordinal])
	}
}

func (s *set) finish(r *rand.Rand) {
	for _, ordinal := range s.ordinals() {
		s.truth.goes(s.of(ordinal))
	}
	if s.made.uid != "" {
		s.delete(s.made)
	}
	for _, ordinal := range sorted(s.pods) {
		s.drop(r, s.pods[ordinal])
	}
	s.made, s.pods = made{}, map[int]*pod{}
}

// loose are pods that own their addresses themselves: of a Deployment, of Jobs, or alone under one name.
type loose struct {
	crew
	name string
	// jobs end by themselves. alone is always of one name.
	jobs, alone bool
	pods        []*pod
	made        int
}

func (l *loose) step(r *rand.Rand) {
	const most = 3
	if len(l.pods) > 0 && (len(l.pods) == most || l.alone || r.IntN(2) == 0) {
		l.remove(r, r.IntN(len(l.pods)))
	}
	if len(l.pods) < most && (!l.alone || len(l.pods) == 0) {
		l.made++
		name, controller := fmt.Sprintf("%s-%x", l.name, l.made), "ReplicaSet"
		switch {
		case l.alone:
			l.pods = append(l.pods, l.newPod(l.name, nil, false))
		case l.jobs:
			controller = "Job"
			fallthrough
		default:
			version := map[string]string{"ReplicaSet": "apps/v1", "Job": "batch/v1"}[controller]
			refers := m{"apiVersion": version, "kind": controller, "name": l.name, "uid": zeroUID, "controller": true}
			l.pods = append(l.pods, l.newPod(name, nil, false, m{"metadata.ownerReferences": []m{refers}}))
		}
	}
	for _, p := range l.pods {
		l.ensure(r, p)
	}
}

func (l *loose) remove(r *rand.Rand, i int) {
	p := l.pods[i]
	if l.jobs { // It has done its work, and the API keeps it for a while.
		l.truth.goes(p.owner)
		l.patch(p.path()+"/status", m{"status": m{"phase": "Succeeded"}})
		l.leave(r, p)
	}
	l.drop(r, p)
	l.pods = slices.Delete(l.pods, i, i+1)
}

func (l *loose) finish(r *rand.Rand) {
	for len(l.pods) > 0 {
		l.remove(r, 0)
	}
}

// machine is a virtual machine, or an instance without one. Its pods have new names.
type machine struct {
	crew
	name string
	// alone says that there is no VirtualMachine.
	alone    bool
	vm, runs made
	launcher *pod
	launched int
}

func (v *machine) step(r *rand.Rand) {
	switch n := r.IntN(12); {
	case n == 0:
		v.finish(r)
	case n < 4:
		if v.stop(r); r.IntN(2) == 0 {
			v.rest(r)
		}
	default:
		v.launch(r, n < 9)
	}
}

// launch starts the machine. anew says that a machine that runs gets another launcher.
func (v *machine) launch(r *rand.Rand, anew bool) {
	if v.vm.uid == "" && !v.alone {
		v.vm = v.make("VirtualMachine.kubevirt.io", v.name, nil)
		v.truth.lives(lasting(v.vm, 0).Owner)
	}
	if v.runs.uid == "" {
		parts := by(v.vm)
		if v.alone {
			parts = nil
		}
		v.runs = v.make("VirtualMachineInstance.kubevirt.io", v.name, parts)
		if v.alone {
			v.truth.lives(lasting(v.runs, 0).Owner)
		}
	}
	if v.launcher != nil && anew {
		v.drop(r, v.launcher)
		v.launcher = nil
	}
	if v.launcher == nil {
		owner := lasting(v.vm, 0).Owner
		if v.alone {
			owner = lasting(v.runs, 0).Owner
		}
		v.launched++
		v.launcher = v.newPod(fmt.Sprintf("virt-launcher-%s-%x", v.name, v.launched), &owner, false, by(v.runs))
		v.patch(v.runs.path()+"/status", m{"status": m{"activePods": m{string(v.launcher.uid): "node1"}}})
	}
	v.ensure(r, v.launcher)
}

// stop ends the instance. The machine keeps its address.
func (v *machine) stop(r *rand.Rand) {
	if v.runs.uid != "" {
		if v.alone {
			v.truth.goes(lasting(v.runs, 0).Owner)
		}
		v.delete(v.runs)
		v.runs = made{}
	}
	if v.launcher != nil {
		v.drop(r, v.launcher)
		v.launcher = nil
	}
}

func (v *machine) finish(r *rand.Rand) {
	if v.vm.uid != "" {
		v.truth.goes(lasting(v.vm, 0).Owner)
		v.delete(v.vm)
		v.vm = made{}
	}
	v.stop(r)
}

// teamOfPods is an owner that several pods name in an annotation.
type teamOfPods struct {
	crew
	name     string
	made     made
	pods     []*pod
	launched int
}

func (n *teamOfPods) step(r *rand.Rand) {
	const most = 3
	if n.made.uid == "" {
		n.made = n.make("StatefulSet.apps", n.name, setSpec(n.name, m{"replicas": 0}))
		n.truth.lives(lasting(n.made, 0).Owner)
	}
	switch does := r.IntN(12); {
	case does == 0:
		n.finish(r)
		return
	case does < 5 && len(n.pods) < most:
		owner := lasting(n.made, 0).Owner
		n.launched++
		n.pods = append(n.pods, n.newPod(fmt.Sprintf("%s-of-%x", n.name, n.launched), &owner, true, annotated("ipam.relink.dev/owner", "statefulset.apps/"+n.name)))
	case does < 8 && len(n.pods) > 0:
		i := r.IntN(len(n.pods))
		n.drop(r, n.pods[i])
		n.pods = slices.Delete(n.pods, i, i+1)
	case len(n.pods) > 0:
		n.leave(r, n.pods[r.IntN(len(n.pods))])
	}
	for _, p := range n.pods {
		n.ensure(r, p)
	}
}

func (n *teamOfPods) finish(r *rand.Rand) {
	for _, p := range n.pods {
		n.drop(r, p)
	}
	if n.pods = nil; n.made.uid != "" {
		n.truth.goes(lasting(n.made, 0).Owner)
		n.delete(n.made)
		n.made = made{}
	}
}

func sorted(pods map[int]*pod) (all []int) {
	for ordinal := range pods {
		all = append(all, ordinal)
	}
	slices.Sort(all)
	return all
}

// oneOf returns any of the pods, nil if there is none.
func oneOf(r *rand.Rand, pods map[int]*pod) *pod {
	all := sorted(pods)
	if len(all) == 0 {
		return nil
	}
	return pods[all[r.IntN(len(all))]]
}

// ordinalIn is the number at the end of a name.
func ordinalIn(name string) (n int) {
	_, _ = fmt.Sscan(name[strings.LastIndexByte(name, '-')+1:], &n)
	return n
}

// settled waits until all sandboxes have ended.
func (c *crew) settled() { c.late.Wait() }
