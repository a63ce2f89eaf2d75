package cluster

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
)

// whatBecomesOfAddresses tells it, and of checkpoints, situation by situation: with a real API, agent, plugins and network namespaces.
// Each row says why. All of them share one agent.
func (a *api) whatBecomesOfAddresses(t *testing.T) {
	r := a.rig(t)
	for _, row := range []struct {
		name string
		run  func(*testing.T, *rowState)
	}{
		{"a pod is deleted and its sandbox is gone", podIsGone},
		{"a pod of a StatefulSet restarts", restarts},
		{"in every order", everyOrder},
		{"a StatefulSet is scaled down", scaledDown},
		{"an OpenKruise StatefulSet leaves out ordinals", reservedOrdinals},
		{"scaled down and up at once", downAndUp},
		{"deleted and made anew", madeAnew},
		{"deleted without its pods, and made anew", adopted},
		{"pods that name their owner", namedOwner},
		{"a workload moves to another network", movesAway},
		{"a workload no longer uses relink-ipam", withoutIPAM},
		{"a workload no longer uses relink", withoutRelink},
		{"a Job has finished", jobEnds},
		{"a pod is Terminating, and its node is not ready", terminating},
		{"an ADD is under way", underWay},
		{"a virtual machine restarts", machineRestarts},
		{"names that look alike", namesAlike},
		{"a virtual machine is deleted, or only stopped", machineIsGone},
		{"a migration's completed source", migrated},
		{"a static address is changed", staticChanges},
		{"replay: two pods have the address of a restarting StatefulSet", replayRestart},
		{"replay: the pods of a workload that moved away do not start", replayLeftovers},
		{"replay: a healthy virtual machine behind Multus is called lost", replayMultus},
		{"replay: a stopped virtual machine loses the address of a second network", replayStopped},
		{"replay: a new network for one interface changes the other's address", replayTwoInterfaces},
		{"replay: what a DEL gave up is given up once more", replayTwiceFreed},
		{"replay: attempts to start a pod use up the addresses", replayAttempts},
		{"replay: a StatefulSet of an operator's controller", replayOperator},
		{"replay: a pod moves to another node and loses its new address", replayOtherNode},
		{"replay: the range of a network is changed", replayOtherRange},
		{"replay: a node's part is full of what waits for pods that run elsewhere", replayElsewhere},
		{"what keeps the address of a pod that seems to be elsewhere", keptHere},
		{"a pod runs elsewhere for long", elsewhereForLong},
		{"pods run elsewhere, and the API is slow", elsewhereSlowly},
		{"the API says nothing", sayNothing},
		{"the API is slow", slowAPI},
		{"the watch is stale", staleWatch},
		{"an owner comes back in the last moment", lastMoment},
		{"the container runtime says nothing", runtimeSaysNothing},
		{"many, and one error", manyAndOneError},
		{"another cluster's kubeconfig", otherCluster},
		{"an emptied API", emptiedAPI},
		{"a pod whose owner cannot be read", unreadableOwner},
		{"the API is away", apiIsAway}, // It stays away.
	} {
		t.Run(row.name, func(t *testing.T) { row.run(t, r.rowState(t)) })
	}
}

// set makes a StatefulSet with so many replicas.
func (s *rowState) set(t *testing.T, name string, replicas int) made {
	t.Helper()
	return s.setOf(t, "StatefulSet.apps", "shop", name, m{"replicas": replicas})
}

// member makes the pod of a StatefulSet with the ordinal.
func (s *rowState) member(t *testing.T, set made, ordinal int) made {
	t.Helper()
	return s.podOn(t, set.namespace, fmt.Sprintf("%s-%d", set.name, ordinal), by(set))
}

// of is the owner of what the pod of a StatefulSet with the ordinal has.
func of(set made, ordinal int) attachment.Owner {
	return lasting(set, attachment.OrdinalOf(ordinal)).Owner
}

func podIsGone(t *testing.T, s *rowState) {
	web := s.set(t, "gone", 1)
	stays, loose := s.member(t, web, 0), s.podOn(t, "shop", "gone-abc")
	a, b := s.box(t, "stays", stays), s.box(t, "loose", loose)
	s.add(t, a, "lan", 2)
	s.add(t, b, "lan", 3)
	s.keeps(t, "both live")
	s.delete(t, stays)
	s.delete(t, loose)
	s.keeps(t, "the pods are deleted, and the sandboxes are there")
	s.dies(t, a, b)
	const ready = namespaceGone + " | but the container runtime says that the sandbox is ready"
	s.pass(t, "the runtime does not know yet", "lan .2 kept: "+ready, "lan .3 kept: "+ready, "checkpoint of stays kept: "+ready, "checkpoint of loose kept: "+ready)
	s.runtime.knows(a, false)
	s.runtime.knows(b, false)
	const owed = namespaceGone + " | the container runtime still has the sandbox, stopped: it owes a DEL"
	s.pass(t, "the runtime owes a DEL", "lan .2 kept: "+owed, "lan .3 kept: "+owed, "checkpoint of stays kept: "+owed, "checkpoint of loose kept: "+owed)
	s.runtime.forgets(a)
	s.runtime.forgets(b)
	s.relink(t, 0, "audit", "lease without sandbox", "its network namespace is gone", noSandbox+". relink gc frees it")
	s.relink(t, 0, "gc --dry-run", "Seen dead for 0s, and 10m0s are needed")
	s.reclaims(t, "gone", "lan .2 freed, reserved: "+dead, "lan .3 freed, free: "+dead, "checkpoint of stays freed: "+dead, "checkpoint of loose freed: "+dead)
	s.is(t, "lan", 2, "reserved for StatefulSet shop/gone, ordinal 0")
	events, err := s.open(t, "lan").History(t.Context(), s.at("lan", 2))
	if why := events[len(events)-1].Reason; err != nil || !strings.HasPrefix(why, "its sandbox is gone: its network namespace is gone: ") || !strings.Contains(why, "seen dead twice") {
		t.Errorf("%q, %v", why, err)
	}
	s.add(t, s.box(t, "next", s.member(t, web, 0)), "lan", 2)
}

func restarts(t *testing.T, s *rowState) {
	web := s.set(t, "restart", 1)
	pod := s.member(t, web, 0)
	b := s.box(t, "before", pod)
	s.add(t, b, "lan", 2)
	s.ends(t, b, "lan")
	s.keeps(t, "its pod ends")
	s.delete(t, pod)
	s.keeps(t, "it has no pod")
	s.judged(t, of(web, 0), owner.Exists, "the StatefulSet shop/restart uses the ordinal 0")
	pod = s.member(t, web, 0)
	s.keeps(t, "its next pod is Pending")
	s.is(t, "lan", 2, "reserved for StatefulSet shop/restart, ordinal 0")
	s.add(t, s.box(t, "stranger", s.podOn(t, "shop", "restart-stranger")), "lan", 3)
	after := s.box(t, "after", pod)
	s.add(t, after, "lan", 2)
	s.keeps(t, "its next pod runs")
	s.has(t, after, "lan", 2)
}

func scaledDown(t *testing.T, s *rowState) {
	web := s.setOf(t, "StatefulSet.apps", "shop", "scaled", m{"replicas": 3, "ordinals": m{"start": 5}})
	var boxes []*box
	for i := range 3 {
		b := s.box(t, fmt.Sprintf("scaled-%d", 5+i), s.member(t, web, 5+i))
		s.add(t, b, "lan", 2+i)
		boxes = append(boxes, b)
	}
	s.scale(t, web, m{"replicas": 2})
	s.keeps(t, "scaled down, and its last pod still runs")
	s.delete(t, boxes[2].pod)
	s.ends(t, boxes[2], "lan")
	s.reclaims(t, "scaled down", "lan .4 freed, free: its owner is gone: the StatefulSet shop/scaled has no pod with the ordinal 7: it is scaled to 2 replicas, and ordinal 7 would be number 3 of them")
	s.ends(t, boxes[0], "lan")
	s.keeps(t, "the first one restarts")
	s.scale(t, web, m{"ordinals": m{"start": 6}})
	s.reclaims(t, "it begins later", "lan .2 freed, free: its owner is gone: the StatefulSet shop/scaled has no pod with the ordinal 5: its ordinals begin with 6")
	s.has(t, boxes[1], "lan", 3)
	s.is(t, "lan", 3, "held by scaled-6 for StatefulSet shop/scaled, ordinal 6")
}

func reservedOrdinals(t *testing.T, s *rowState) {
	web := s.setOf(t, "StatefulSet.apps.kruise.io", "shop", "leaves-out", m{"replicas": 3, "reserveOrdinals": []any{1, "3-5"}})
	for i, ordinal := range []int{0, 2, 6} {
		b := s.box(t, fmt.Sprintf("kruise-%d", ordinal), s.member(t, web, ordinal))
		s.add(t, b, "lan", 2+i)
		s.ends(t, b, "lan")
	}
	s.keeps(t, "0, 2 and 6 are its three")
	s.judged(t, of(web, 6), owner.Exists, "uses the ordinal 6")
	s.scale(t, web, m{"replicas": 2})
	s.pass(t, "two replicas", "lan .4 waiting: the StatefulSet shop/leaves-out has no pod with the ordinal 6: it is scaled to 2 replicas, and ordinal 6 would be number 3 of them")
	s.scale(t, web, m{"reserveOrdinals": []any{1, 2, "3-5"}})
	s.reclaims(t, "2 is left out, and 6 is in its place", "lan .3 freed, free: its owner is gone | its reserveOrdinals leave out ordinal 2")
	s.is(t, "lan", 4, "reserved for StatefulSet shop/leaves-out, ordinal 6")
	s.scale(t, web, m{"reserveOrdinals": []any{"3 to 5"}})
	s.pass(t, "nobody can read it", "lan .2 kept: whether its owner is gone is not known | reserveOrdinals", "lan .4 kept: whether its owner is gone is not known | reserveOrdinals")
}

func downAndUp(t *testing.T, s *rowState) {
	web := s.set(t, "down-up", 2)
	b := s.box(t, "before", s.member(t, web, 1))
	s.add(t, b, "lan", 2)
	s.scale(t, web, m{"replicas": 1})
	s.delete(t, b.pod)
	s.ends(t, b, "lan")
	const first = "lan .2 waiting: it is scaled to 1 replicas | seen dead for 0s"
	s.pass(t, "down", first)
	s.scale(t, web, m{"replicas": 2})
	s.keeps(t, "up")
	s.scale(t, web, m{"replicas": 1})
	s.pass(t, "down again: the time counts anew", first)
	s.scale(t, web, m{"replicas": 2})
	s.add(t, s.box(t, "after", s.member(t, web, 1)), "lan", 2)
	s.keeps(t, "its pod has it")

	// The sandbox before is there until its pod has ended. The next one takes the address over.
	pod := s.anew(t, made{"Pod", "shop", "down-up-1", ""}, by(web))
	s.add(t, s.box(t, "third", pod), "lan", 2)
	s.is(t, "lan", 2, "held by after and third for StatefulSet shop/down-up, ordinal 1")
	s.add(t, s.box(t, "stranger", s.podOn(t, "shop", "down-up-stranger")), "lan", 3)
}

func madeAnew(t *testing.T, s *rowState) {
	old := s.set(t, "anew", 1)
	before := s.box(t, "before", s.member(t, old, 0))
	s.add(t, before, "lan", 2)
	s.delete(t, before.pod)
	s.delete(t, old)
	now := s.set(t, "anew", 1)
	after := s.box(t, "after", s.member(t, now, 0))
	s.add(t, after, "lan", 3) // The one before is still there.
	s.keeps(t, "both sandboxes are there")
	s.ends(t, before, "lan")
	s.reclaims(t, "the old one has ended", fmt.Sprintf("lan .2 freed, free: its owner is gone: the StatefulSet shop/anew was made anew: its UID is %s, and was %s", now.uid, old.uid))
	s.is(t, "lan", 3, "held by after for StatefulSet shop/anew, ordinal 0")
	s.has(t, after, "lan", 3)
}

func jobEnds(t *testing.T, s *rowState) {
	job := made{"Job.batch", "shop", "report", zeroUID}
	var boxes []*box
	for i, phase := range []string{"Succeeded", "Failed"} {
		pod := s.podOn(t, "shop", "report-"+strings.ToLower(phase), by(job))
		b := s.box(t, phase, pod)
		s.add(t, b, "lan", 2+i)
		s.merge(t, pod.path()+"/status", m{"status": m{"phase": phase}})
		boxes = append(boxes, b)
	}
	s.keeps(t, "ended, and the sandboxes are there")
	s.runtime.knows(boxes[0], false)
	s.keeps(t, "one is stopped, and its namespace is there")
	s.vanishes(t, boxes...)
	s.reclaims(t, "the sandboxes are gone", "lan .2 freed, free: "+dead, "lan .3 freed, free: "+dead, "checkpoint of Succeeded freed: "+dead, "checkpoint of Failed freed: "+dead)
}

func terminating(t *testing.T, s *rowState) {
	web := s.set(t, "slow", 1)
	b, loose := s.box(t, "slow", s.member(t, web, 0)), s.box(t, "loose", s.podOn(t, "shop", "slow-loose"))
	s.add(t, b, "lan", 2)
	s.add(t, loose, "lan", 3)
	s.deleteSlowly(t, b.pod, 1)
	s.deleteSlowly(t, loose.pod, 1)
	within := time.Now()
	s.keeps(t, "within the grace")
	node := m{"apiVersion": "v1", "kind": "Node", "metadata": m{"name": "node1"}}
	s.create(t, "/api/v1/nodes", node, &struct{}{})
	s.merge(t, "/api/v1/nodes/node1/status", m{"status": m{"conditions": []m{{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}}}})
	time.Sleep(time.Until(within.Add(1500 * time.Millisecond)))
	s.keeps(t, "past the grace, and the node is not ready")
	s.delete(t, b.pod) // As the controllers do with the pods of a node that is lost.
	s.delete(t, loose.pod)
	s.scale(t, web, m{"replicas": 0})
	s.keeps(t, "the pods are out of the API, and run all the same")
	s.has(t, b, "lan", 2)
	s.has(t, loose, "lan", 3)
	s.ask(t, http.MethodDelete, "/api/v1/nodes/node1", "", nil)
	s.scale(t, web, m{"replicas": 1})
	s.vanishes(t, b, loose)
	s.reclaims(t, "the sandboxes are gone", "lan .2 freed, reserved: "+dead, "lan .3 freed, free: "+dead, "checkpoint of slow freed: "+dead, "checkpoint of loose freed: "+dead)
	s.scale(t, web, m{"replicas": 0})
	s.reclaims(t, "its owner is gone", "lan .2 freed, free: it is scaled to 0 replicas")
}

// underWay has an ADD that looks for others who use the address. It was given the address, and has no checkpoint yet.
func underWay(t *testing.T, s *rowState) {
	s.keys["lan"] = `, "conflictDetection": {"probes": 3, "wait": "700ms"}`
	pod := s.podOn(t, "shop", "pending")
	s.merge(t, pod.path()+"/status", m{"status": m{"phase": "Pending"}})
	b := s.box(t, "pending", pod)
	add := s.plugin("ADD", b, "lan", nil)
	ended := make(chan error)
	go func() { ended <- add.Run() }()
	await(t, 10*time.Second, "the address", func() bool {
		_, err := s.open(t, "lan").Get(t.Context(), s.at("lan", 2))
		return err == nil
	})
	passes := 0
	for during := true; during; passes++ {
		s.pass(t, "under way")
		select {
		case err := <-ended:
			if during = false; err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
	if passes < 2 {
		t.Error("no pass has ended while the ADD was under way")
	}
	s.runtime.knows(b, true)
	s.is(t, "lan", 2, fmt.Sprintf("held by pending for %s", itself(pod).Owner))
	s.has(t, b, "lan", 2)

	// An ADD that was killed leaves a sandbox with an address. It goes with its sandbox.
	killed := s.box(t, "killed", s.podOn(t, "shop", "killed"))
	add = s.plugin("ADD", killed, "lan", nil)
	if err := add.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, 10*time.Second, "the next address", func() bool {
		_, err := s.open(t, "lan").Get(t.Context(), s.at("lan", 3))
		return err == nil
	})
	_ = add.Process.Kill()
	_ = add.Wait()
	s.keeps(t, "killed, and its sandbox is there")
	s.dies(t, killed)
	s.reclaims(t, "killed, and its sandbox is gone", "lan .3 freed, free: "+dead)
}
