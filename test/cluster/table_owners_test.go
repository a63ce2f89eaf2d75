package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// adopted has a StatefulSet that is deleted without its pods, and made anew: it takes the pods over. It is another owner.
func adopted(t *testing.T, s *rowState) {
	old := s.set(t, "adopted", 1)
	first := s.box(t, "first", s.member(t, old, 0))
	s.add(t, first, "lan", 2)
	s.delete(t, old) // No garbage collector runs here: the pod stays.
	s.keeps(t, "its pod lives on")
	now := s.set(t, "adopted", 1)
	s.merge(t, first.pod.path(), m{"metadata": m{"ownerReferences": by(now)["metadata.ownerReferences"]}})
	await(t, 10*time.Second, "the pod's new owner", func() bool {
		got, err := s.agent().Ask(context.Background(), question(first.pod))
		return err == nil && got.Owner == of(now, 0)
	})
	s.keeps(t, "adopted")
	s.has(t, first, "lan", 2)
	second := s.box(t, "second", first.pod) // The same pod has another sandbox. The one before has not ended.
	s.add(t, second, "lan", 3)
	s.ends(t, first, "lan")
	s.reclaims(t, "the first sandbox has ended", fmt.Sprintf("lan .2 freed, free: was made anew: its UID is %s, and was %s", now.uid, old.uid))
	s.ends(t, second, "lan")
	s.add(t, s.box(t, "third", s.anew(t, first.pod, by(now))), "lan", 3)
}

// namedOwner has pods that name one owner. Each has its own address, and all addresses wait.
func namedOwner(t *testing.T, s *rowState) {
	set := s.set(t, "names", 0)
	name := func(pod string) *box {
		return s.box(t, pod, s.podOn(t, "shop", pod, annotated("ipam.relink.dev/owner", "statefulset.apps/names")))
	}
	a, b := name("names-a"), name("names-b")
	s.add(t, a, "lan", 2)
	s.add(t, b, "lan", 3)
	s.vanishes(t, a)
	s.delete(t, a.pod)
	s.reclaims(t, "one is gone", "lan .2 freed, reserved: "+dead, "checkpoint of names-a freed: "+dead)
	c := name("names-c")
	s.add(t, c, "lan", 2)
	s.ends(t, b, "lan")
	s.ends(t, c, "lan")
	s.keeps(t, "the owner lives")
	s.delete(t, set)
	const gone = `its owner is gone: the Kubernetes API answers that it does not exist: statefulsets.apps "names" not found`
	s.reclaims(t, "the owner is gone", "lan .2 freed, free: "+gone, "lan .3 freed, free: "+gone)
}

// An operator's own controller owned the StatefulSet. So its pods were nobody's: an address was given twice.
func replayOperator(t *testing.T, s *rowState) {
	set := s.set(t, "cluster", 1)
	s.merge(t, set.path(), m{"metadata": m{"ownerReferences": []m{{"apiVersion": "redis.example.org/v1", "kind": "RedisCluster", "name": "cluster", "uid": zeroUID, "controller": true}}}})
	b := s.box(t, "before", s.member(t, set, 0))
	s.add(t, b, "lan", 2)
	s.vanishes(t, b)
	s.reclaims(t, "gone", "lan .2 freed, reserved: "+dead, "checkpoint of before freed: "+dead)
	s.add(t, s.box(t, "stranger", s.podOn(t, "shop", "cluster-stranger")), "lan", 3)
	s.add(t, s.box(t, "after", s.anew(t, b.pod, by(set))), "lan", 2)
	s.keeps(t, "after")
}

// A node was lost, and a pod of a StatefulSet got another address on another node. A GC looked for the pod by its name, and
// gave up the new address.
func replayOtherNode(t *testing.T, s *rowState) {
	other := s.rowState(t)
	set := s.set(t, "node-lost", 1)
	before := s.box(t, "before", s.member(t, set, 0))
	s.add(t, before, "lan", 2)
	s.delete(t, before.pod)
	pod := s.make(t, "Pod", "shop", "node-lost-0", with(by(set), m{"spec": m{"nodeName": "node2", "containers": []m{{"name": "c", "image": "i"}}}}))
	after := other.box(t, "after", pod)
	other.add(t, after, "lan", 2)
	s.keeps(t, "the node is cut off, and the sandbox runs")
	s.has(t, before, "lan", 2)
	s.vanishes(t, before)
	s.reclaims(t, "the node was started again", "lan .2 freed, reserved: "+dead, "checkpoint of before freed: "+dead)
	other.gc(t, "lan", after)
	other.keeps(t, "on the other node")
	other.is(t, "lan", 2, "held by after for StatefulSet shop/node-lost, ordinal 0")
	other.has(t, after, "lan", 2)
	s.scale(t, set, m{"replicas": 0})
	s.reclaims(t, "scaled down", "lan .2 freed, free: it is scaled to 0 replicas")
	other.keeps(t, "its pod still runs")
	other.ends(t, after, "lan")
	other.reclaims(t, "scaled down", "lan .2 freed, free: it is scaled to 0 replicas")
}

// The range of a network was changed. Pods whose addresses are not in it any more did not start, or got an old address.
func replayOtherRange(t *testing.T, s *rowState) {
	set := s.set(t, "ranges", 1)
	b := s.box(t, "before", s.member(t, set, 0))
	s.add(t, b, "lan", 2)
	s.keys["lan"] = `, "rangeStart": "` + s.at("lan", 100).String() + `"`
	s.has(t, b, "lan", 2)
	s.keeps(t, "the pod runs on")
	s.ends(t, b, "lan")
	b = s.box(t, "after", s.anew(t, b.pod, by(set)))
	s.add(t, b, "lan", 100)
	s.keeps(t, "it has an address of the new range")
	s.ends(t, b, "lan")
	b = s.box(t, "again", s.anew(t, b.pod, by(set)))
	s.add(t, b, "lan", 100)
	s.scale(t, set, m{"replicas": 0})
	s.ends(t, b, "lan")
	const gone = "it is scaled to 0 replicas"
	s.reclaims(t, "scaled down", "lan .2 freed, free: "+gone, "lan .100 freed, free: "+gone)
}
