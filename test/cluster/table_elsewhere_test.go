package cluster

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// onNode2 are the parts of a pod on another node.
func onNode2(parts ...m) m {
	return with(append([]m{{"spec": m{"nodeName": "node2", "containers": []m{{"name": "c", "image": "i"}}}}}, parts...)...)
}

// leaves attaches the pod of the ordinal, ends it, and makes it again on another node.
func (s *rowState) leaves(t *testing.T, set made, ordinal, last int) made {
	t.Helper()
	b := s.box(t, fmt.Sprintf("%s-%d", set.name, ordinal), s.member(t, set, ordinal))
	s.add(t, b, "lan", last)
	s.ends(t, b, "lan")
	s.delete(t, b.pod)
	return s.make(t, "Pod", "shop", b.pod.name, onNode2(by(set)))
}

// narrow gives the network the addresses from .2 to the last one.
func (s *rowState) narrow(last int) {
	s.keys["lan"] = fmt.Sprintf(`, "rangeStart": %q, "rangeEnd": %q`, s.at("lan", 2), s.at("lan", last))
}

// replayElsewhere has a node whose part is six addresses, and a StatefulSet whose pods have been here one after the other.
func replayElsewhere(t *testing.T, s *rowState) {
	s.narrow(7)
	set := s.set(t, "left", 8)
	for i := range 6 {
		s.leaves(t, set, i, 2+i)
	}
	const kept = " is kept for StatefulSet shop/left, ordinal 0: its pod shop/left-0 "
	s.delete(t, made{"Pod", "shop", "left-0", ""})
	for i := 1; i < 6; i++ { // Two pods start here. They get what the pods have left that left first.
		s.is(t, "lan", 2+i, fmt.Sprintf("reserved for StatefulSet shop/left, ordinal %d", i))
	}
	seventh, eighth := s.box(t, "seventh", s.member(t, set, 6)), s.box(t, "eighth", s.podOn(t, "shop", "left-alone"))
	s.add(t, seventh, "lan", 3)
	s.add(t, eighth, "lan", 4)
	s.is(t, "lan", 2, "reserved for StatefulSet shop/left, ordinal 0")
	s.has(t, seventh, "lan", 3)
	for i := 3; i < 6; i++ {
		s.delete(t, made{"Pod", "shop", fmt.Sprintf("left-%d", i), ""})
	}
	ninth := s.box(t, "ninth", s.member(t, set, 7))
	s.refused(t, ninth, "lan", 11, "no address is free: 2 held, 4 reserved, 0 in quarantine; relink ipam list says for whom; "+s.at("lan", 2).String()+kept+"does not exist")
	s.add(t, s.box(t, "back", s.member(t, set, 0)), "lan", 2) // It has come back.
	events, err := s.open(t, "lan").History(t.Context(), s.at("lan", 3))
	const why = "no address was free, and its pod shop/left-1 is on node node2"
	if err != nil || !slices.ContainsFunc(events, func(e lease.Event) bool { return e.Reason == why }) {
		t.Errorf("%+v, %v, want one because %s", events, err, why)
	}
}

// keptHere has one address, and everything that must not give it to another pod.
func keptHere(t *testing.T, s *rowState) {
	s.narrow(2)
	set := s.set(t, "kept", 2)
	there := s.leaves(t, set, 0, 2)
	stranger := s.box(t, "stranger", s.podOn(t, "shop", "kept-stranger"))
	keeps := func(when, says string) {
		t.Helper()
		s.refused(t, stranger, "lan", 11, "no address is free: 0 held, 1 reserved, 0 in quarantine; relink ipam list says for whom; "+says)
		if s.is(t, "lan", 2, "reserved for StatefulSet shop/kept, ordinal 0"); t.Failed() { // The rest would say the same.
			t.Fatal(when)
		}
	}
	is := s.at("lan", 2).String() + " is kept for StatefulSet shop/kept, ordinal 0: "
	for name, answer := range map[string]http.HandlerFunc{"an error": failing, "forbidden": forbidding, "a page": page, "another 404": elsewhere, "no answer": hangUp} {
		s.proxy.answer(t, about("/pods/kept-0", answer))
		keeps(name, is+"where its pod shop/kept-0 is, is not known: the Kubernetes API ")
		s.proxy.answer(t, about("/statefulsets/kept", answer))
		keeps(name, is+"the Kubernetes API ")
	}
	s.proxy.answer(t, about("/pods/kept-0", silent))
	keeps("silence", is)
	s.proxy.answer(t, nil)
	socket := s.socket
	s.rig = &rig{api: s.api, host: s.host, proxy: s.proxy, runtime: s.runtime, socket: socket + "-none"}
	unsticky := m{"allowPersistentIPs": false, "ipam": m{ // This ADD does not need the agent for itself.
		"type": "relink-ipam", "dataDir": s.leaseDir, "subnet": s.subnet("lan") + ".0/24", "rangeStart": s.at("lan", 2), "rangeEnd": s.at("lan", 2),
	}}
	if _, refused := s.tryAdd(t, stranger, "lan", unsticky); refused == nil || refused.Code != 11 || !strings.Contains(refused.Error(), is+"no relink-agent runs on this node") {
		t.Errorf("without an agent: %v", refused)
	}
	s.socket = socket

	if _, err := s.run(t, time.Hour); err != nil { // From now on the network's cluster is known.
		t.Fatal(err)
	}
	s.proxy.answer(t, about("/namespaces/kube-system", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"`+zeroUID+`"}}`)
	}))
	keeps("another cluster", is+"network lan: the Kubernetes API is another cluster's")
	s.proxy.answer(t, nil)

	s.merge(t, there.path(), m{"metadata": m{"finalizers": []string{"example.org/hold"}}})
	s.deleteSlowly(t, there, 30)
	keeps("terminating", is+"its pod shop/kept-0 is being deleted")
	s.merge(t, there.path(), m{"metadata": m{"finalizers": nil}})
	s.delete(t, there)
	keeps("no pod", is+"its pod shop/kept-0 does not exist")
	there = s.make(t, "Pod", "shop", "kept-0", onNode2(by(set)))
	s.merge(t, there.path()+"/status", m{"status": m{"phase": "Failed"}})
	keeps("failed", is+"its pod shop/kept-0: the pod has ended")
	s.delete(t, there)
	there = s.make(t, "Pod", "shop", "kept-0", m{"spec": m{"containers": []m{{"name": "c", "image": "i"}}}})
	keeps("no node", is+"its pod shop/kept-0 is not one that the StatefulSet with the UID "+string(set.uid)+" controls")
	s.delete(t, there)
	there = s.make(t, "Pod", "shop", "kept-0", with(by(set), m{"spec": m{"containers": []m{{"name": "c", "image": "i"}}}}))
	keeps("no node", is+"its pod shop/kept-0 has no node yet")
	s.delete(t, there)
	there = s.member(t, set, 0)
	keeps("here", is+"its pod shop/kept-0 is on this node")
	s.delete(t, there)
	s.delete(t, set)
	anew := s.set(t, "kept", 2)
	s.make(t, "Pod", "shop", "kept-0", onNode2(by(anew)))
	keeps("made anew", is+"the StatefulSet shop/kept was made anew")
}

// elsewhereForLong has a pod that runs on another node. Nobody needs its address here, and gc gives it up.
func elsewhereForLong(t *testing.T, s *rowState) {
	set := s.set(t, "long", 2)
	there := s.leaves(t, set, 0, 2)
	s.keys["lan"] = `, "retain": "24h"`
	s.leaves(t, set, 1, 3)
	const waits = "lan .2 waiting: its owner lives: the StatefulSet shop/long uses the ordinal 0 | its pod shop/long-0 is on node node2"
	s.notes(t, "it runs there", waits)
	s.delete(t, there)
	s.keeps(t, "it is deleted there")
	s.make(t, "Pod", "shop", "long-0", onNode2(by(set)))
	s.reclaims(t, "it runs there again", "lan .2 freed, free: its owner lives: the StatefulSet shop/long uses the ordinal 0 | its pod shop/long-0 is on node node2")
	s.is(t, "lan", 3, "reserved for StatefulSet shop/long, ordinal 1")
}

// elsewhereSlowly has a node whose part is full, and an API that needs about a second for each answer. A pod starts all the same.
func elsewhereSlowly(t *testing.T, s *rowState) {
	s.narrow(13)
	set := s.set(t, "slowly", 13)
	for i := range 12 {
		s.leaves(t, set, i, 2+i)
	}
	b := s.box(t, "slowly-12", s.member(t, set, 12))
	s.proxy.answer(t, slowly(s))
	await(t, time.Minute, "an ADD with a slow API", func() bool {
		a, refused := s.tryAdd(t, b, "lan", nil)
		if refused == nil && a != s.at("lan", 2) {
			t.Errorf("ADD gave %s", a)
		}
		if refused != nil {
			t.Logf("ADD is refused: %v", refused)
		}
		return refused == nil
	})
	s.proxy.answer(t, nil)
}
