package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/gc"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
)

// sayNothing has an API that does not say that an owner is gone, in all the ways in which it can fail to. Nothing is freed.
func sayNothing(t *testing.T, s *rowState) {
	dead, live := s.set(t, "silent-dead", 1), s.set(t, "silent-live", 10)
	b := s.box(t, "dead", s.member(t, dead, 0))
	s.add(t, b, "lan", 2)
	s.ends(t, b, "lan")
	s.delete(t, dead)
	for i, test := range []struct {
		name   string
		answer http.HandlerFunc
		says   string
	}{
		{"forbidden", forbidding, "the Kubernetes API refuses: statefulsets.apps is forbidden (status 403)"},
		{"an error", failing, "the Kubernetes API answers with an error: etcdserver: request timed out (status 500)"},
		{"a page of a load balancer", page, "the Kubernetes API does not serve it"},
		{"nothing about the object", elsewhere, "the Kubernetes API does not serve it"},
		{"no answer", hangUp, "the Kubernetes API does not answer"},
		{"slow", silent, "the Kubernetes API does not answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.proxy.answer(t, about("/statefulsets/", test.answer))
			s.pass(t, test.name, "lan .2 kept: whether its owner is gone is not known: "+test.says+"")
			b := s.box(t, "live", s.member(t, live, i))
			s.refused(t, b, "lan", 11, `"sticky": "owner" needs the Kubernetes API: the owner of the address is not known now: `)
			if test.name != "slow" { // Once is enough.
				s.refused(t, b, "lan", 11, test.says)
			}
		})
	}
	s.is(t, "lan", 2, "reserved for StatefulSet shop/silent-dead, ordinal 0")
	const gone = `its owner is gone: the Kubernetes API answers that it does not exist: statefulsets.apps "silent-dead" not found`
	s.pass(t, "it answers", "lan .2 waiting: "+gone)
	s.proxy.answer(t, about("/statefulsets/", failing))
	s.pass(t, "an error in between", "lan .2 kept: (status 500)")
	s.relink(t, 0, "gc --dry-run", "kept: ", "whether its owner is gone is not known", "(status 500)")
	s.proxy.answer(t, nil)
	s.reclaims(t, "the time counts anew", "lan .2 freed, free: "+gone)
}

// slowAPI has an API that needs about a second for each answer. A machine's launcher needs several: what comes too late for one
// ADD is for the next one. The machine asks for its address in two ways, and starts twice.
func slowAPI(t *testing.T, s *rowState) {
	vm := s.machine(t, "shop", "slow")
	s.make(t, "IPAMClaim.k8s.cni.cncf.io", "shop", "slow.lan", m{"spec": m{"network": "lan", "interface": "net1"}})
	networks := annotated("k8s.v1.cni.cncf.io/networks", `[{"name": "lan", "interface": "net1", "ipam-claim-reference": "slow.lan"}]`)
	start := func(id string) *box {
		return s.box(t, id, s.launcher(t, s.vmi(t, vm), with(networks, s.asks("lan", 9))))
	}
	for i, id := range []string{"slow-first", "slow-second"} {
		if i > 0 {
			s.delete(t, made{"VirtualMachineInstance.kubevirt.io", "shop", "slow", ""})
		}
		b := start(id)
		s.proxy.answer(t, slowly(s))
		tries := 0
		await(t, 30*time.Second, "an ADD with a slow API", func() bool {
			tries++
			a, refused := s.tryAdd(t, b, "lan@net1", nil)
			if refused == nil && a != s.at("lan", 9) {
				t.Errorf("ADD gave %s", a)
			}
			if refused != nil && refused.Code != 11 {
				t.Errorf("ADD is refused: %v", refused)
			}
			return refused == nil
		})
		if tries > 5 {
			t.Errorf("%s needed %d ADDs", id, tries)
		}
		s.runtime.knows(b, true)
		s.proxy.answer(t, nil)
		s.ends(t, b, "lan@net1")
	}
}

// slowly is an API that needs about a second for each answer.
func slowly(s *rowState) func(*http.Request) http.HandlerFunc {
	return func(r *http.Request) http.HandlerFunc {
		if r.URL.Query().Has("watch") {
			return nil
		}
		return func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			s.proxy.to.ServeHTTP(w, r)
		}
	}
}

// staleWatch has an API that shows the agent no change of a pod any more. The agent does not notice.
func staleWatch(t *testing.T, s *rowState) {
	old := s.set(t, "stale", 1)
	before := s.box(t, "before", s.member(t, old, 0))
	s.add(t, before, "lan", 2)
	s.proxy.shows(t, before.pod)
	release := s.proxy.hold()
	s.delete(t, before.pod)
	s.delete(t, old)
	now := s.set(t, "stale", 1)
	after := s.box(t, "after", s.member(t, now, 0))
	ask := func(pod made) (owner.Answer, error) { return s.agent().Ask(context.Background(), question(pod)) }
	if got, err := ask(before.pod); err != nil || got.Owner != of(old, 0) {
		t.Errorf("the watch is not stale: %+v, %v", got, err)
	}
	if got, err := ask(after.pod); err != nil || got.Owner != of(now, 0) {
		t.Errorf("%+v, %v, want %+v", got, err, of(now, 0))
	}
	s.add(t, after, "lan", 3)
	s.ends(t, before, "lan")
	s.judged(t, of(now, 0), owner.Exists, "uses the ordinal 0")
	s.reclaims(t, "stale", fmt.Sprintf("lan .2 freed, free: was made anew: its UID is %s, and was %s", now.uid, old.uid))
	s.scale(t, now, m{"replicas": 0})
	s.judged(t, of(now, 0), owner.Gone, "it is scaled to 0 replicas")
	s.has(t, after, "lan", 3)
	release()
	await(t, 10*time.Second, "the watch", func() bool {
		_, err := ask(before.pod)
		return errors.Is(err, owner.ErrUnavailable)
	})
}

// lastMoment has an owner that comes back when the API has just said that it is gone, right before its address would be freed.
func lastMoment(t *testing.T, s *rowState) {
	set := s.set(t, "last-moment", 1)
	first := s.box(t, "first", s.member(t, set, 0))
	s.add(t, first, "lan", 2)
	s.ends(t, first, "lan")
	s.scale(t, set, m{"replicas": 0})
	s.pass(t, "scaled down", "lan .2 waiting: it is scaled to 0 replicas")
	said, goOn := make(chan struct{}), make(chan struct{})
	var asked atomic.Int32
	s.proxy.answer(t, about("/statefulsets/last-moment", func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) != 2 { // In the pass, and once more.
			s.proxy.to.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		s.proxy.to.ServeHTTP(answer, r)
		close(said)
		<-goOn
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	type result struct {
		gc.PassReport
		err error
	}
	done := make(chan result, 1)
	options := s.options(t)
	options.Grace = 1
	go func() {
		r, err := gc.Run(context.Background(), options)
		done <- result{r, err}
	}()
	select {
	case <-said:
	case r := <-done:
		t.Fatalf("the pass has not asked once more: %+v", r)
	}
	s.scale(t, set, m{"replicas": 1})
	second := s.box(t, "second", s.anew(t, first.pod, by(set)))
	s.add(t, second, "lan", 2)
	s.ends(t, second, "lan") // It is reserved again.
	close(goOn)
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	if left, differs := s.compare(r.PassReport, []string{"lan .2 changed meanwhile: it is scaled to 0 replicas"}); differs != "" || len(left) > 0 {
		t.Errorf("in the last moment: %s, missing %q", differs, left)
	}
	s.is(t, "lan", 2, "reserved for StatefulSet shop/last-moment, ordinal 0")
	s.keeps(t, "it is back")
}

func runtimeSaysNothing(t *testing.T, s *rowState) {
	b := s.box(t, "gone", s.podOn(t, "shop", "no-runtime"))
	s.add(t, b, "lan", 2)
	s.vanishes(t, b)
	s.runtime.setDown(true)
	t.Cleanup(func() { s.runtime.setDown(false) })
	const unknown = namespaceGone + " | the container runtime did not say that it has no such sandbox: container runtime at unix:// | the shim is away"
	for range 2 {
		r := s.pass(t, "down", "lan .2 kept: "+unknown, "checkpoint of gone kept: "+unknown)
		if r.Complete() || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "the container runtime did not tell of all its sandboxes") {
			t.Errorf("%q", r.Problems)
		}
	}
	s.relink(t, 1, "audit", "the container runtime did not tell of all its sandboxes")
	s.relink(t, 1, "gc --dry-run", "kept", "the container runtime did not say that it has no such sandbox")
	s.runtime.setDown(false)
	s.reclaims(t, "up", "lan .2 freed, free: "+dead, "checkpoint of gone freed: "+dead)
}

// manyAndOneError has 250 leases, and 1,000 in make test-long. 50 of the owners are gone, and the API fails once, for one of these, right
// before its lease would be freed.
func manyAndOneError(t *testing.T, s *rowState) {
	const each, gone = 50, 50
	sets := 4
	if os.Getenv("RELINK_LONG") != "" {
		sets = 19
	}
	var owners []attachment.Owner
	for i := range sets {
		set := s.set(t, fmt.Sprintf("many-%d", i), each)
		for k := range each {
			owners = append(owners, of(set, k))
		}
	}
	for i := range gone {
		owners = append(owners, attachment.Owner{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "shop", Name: fmt.Sprintf("many-dead-%d", i), UID: zeroUID})
	}
	// Not in their order: the dead ones are everywhere among the living.
	var in lease.Import
	a := netip.MustParseAddr(fmt.Sprintf("10.%d.128.0", s.number))
	for i := range owners {
		a = a.Next()
		of := owners[i*7%len(owners)]
		in.Leases = append(in.Leases, lease.Lease{Address: a, State: lease.Reserved, Owner: of, ReleasedAt: time.Now(), Last: lease.Holder{ContainerID: "c", IfName: "eth0"}})
	}
	store := s.open(t, "many")
	if err := store.Import(t.Context(), false, func(lease.ImportView) lease.Import { return in }); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	s.proxy.answer(t, about("/virtualmachines/many-dead-27", func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 3 { // In the first pass, in the second one, and once more.
			failing(w, r)
			return
		}
		s.proxy.to.ServeHTTP(w, r)
	}))
	expect := func(when string, freed, waiting, kept, left int) gc.PassReport {
		t.Helper()
		r, err := s.run(t, 1)
		if err != nil || r.Count(gc.Freed) != freed || r.Count(gc.Waiting) != waiting || r.Count(change.Kept) != kept || len(r.Outcomes) != freed+waiting+kept {
			t.Errorf("%s: %d freed, %d wait, %d kept of %d, %v", when, r.Count(gc.Freed), r.Count(gc.Waiting), r.Count(change.Kept), len(r.Outcomes), err)
		}
		all, err := store.List(t.Context())
		if err != nil || len(all) != left {
			t.Errorf("%s: %d leases are left, %v", when, len(all), err)
		}
		if n := len(slices.DeleteFunc(all, func(l lease.Lease) bool { return l.Owner.Kind != "StatefulSet" })); n != sets*each {
			t.Errorf("%s: %d leases of the living are left", when, n)
		}
		return r
	}
	living := sets * each
	expect("first", 0, gone, 0, living+gone)
	r := expect("one error", gone-1, 0, 1, living+1)
	for _, o := range r.Outcomes {
		if o.State == change.Kept && (o.Owner.Name != "many-dead-27" || !strings.Contains(o.Reason, `asked once more, right before: the owner's standing is "unknown": the Kubernetes API answers with an error`)) {
			t.Errorf("%s: %s", o.Owner, o.Reason)
		}
	}
	expect("the rest", 1, 0, 0, living)
	expect("nothing is left to do", 0, 0, 0, living)
}

// apiIsAway is the last row: the API does not come back.
func apiIsAway(t *testing.T, s *rowState) {
	set := s.set(t, "away", 2)
	seen, unseen := s.box(t, "seen", s.member(t, set, 0)), s.box(t, "unseen", s.member(t, set, 1))
	vm := s.machine(t, "shop", "away")
	b := s.box(t, "machine", s.launcher(t, s.vmi(t, vm)))
	s.add(t, seen, "lan", 2)
	s.add(t, b, "lan", 3)
	s.proxy.shows(t, seen.pod)
	s.ends(t, b, "lan")
	s.delete(t, vm)
	gone := `lan .3 waiting: its owner is gone: the Kubernetes API answers that it does not exist: virtualmachines.kubevirt.io "away" not found`
	s.pass(t, "the API answers", gone)
	s.stop()
	for range 2 {
		s.pass(t, "the API is away", "lan .3 kept: whether its owner is gone is not known: the Kubernetes API does not answer")
	}
	s.relink(t, 0, "audit", "unknown", "the Kubernetes API does not answer")
	s.relink(t, 0, "gc --dry-run", "kept: ", "the Kubernetes API does not answer")
	s.refused(t, unseen, "lan", 11, `"sticky": "owner" needs the Kubernetes API`)
	s.is(t, "lan", 3, "reserved for VirtualMachine shop/away")
	again := s.box(t, "again", seen.pod) // The pod has another sandbox. Its owner is known.
	s.add(t, again, "lan", 2)
	s.add(t, s.box(t, "static", made{"Pod", "shop", "static-node1", hash}), "lan", 4)
	s.has(t, seen, "lan", 2)
	s.is(t, "lan", 2, "held by seen and again for StatefulSet shop/away, ordinal 0")
}
