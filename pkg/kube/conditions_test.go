package kube

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/relink-cni/relink/pkg/attachment"
)

// What the API has already is not written, and the time is that of the last change of the status.
func TestConditionAfter(t *testing.T) {
	before, instant := metav1.Unix(100, 0), time.Unix(200, 0)
	want := condition{Type: NetworkReady, Status: corev1.ConditionFalse, Reason: "InterfaceLost", Message: "eth0 is lost"}
	present := func(change func(*condition)) *condition {
		c := want
		c.LastTransitionTime = before
		change(&c)
		return &c
	}
	for name, test := range map[string]struct {
		present *condition
		differs bool
		since   metav1.Time
	}{
		"nothing":         {nil, true, metav1.NewTime(instant)},
		"the same":        {present(func(*condition) {}), false, before},
		"another status":  {present(func(c *condition) { c.Status = corev1.ConditionTrue }), true, metav1.NewTime(instant)},
		"another reason":  {present(func(c *condition) { c.Reason = "Other" }), true, before},
		"another message": {present(func(c *condition) { c.Message = "net1 is lost" }), true, before},
	} {
		if next, differs := want.after(test.present, instant); differs != test.differs || !next.LastTransitionTime.Equal(&test.since) || next.Message != want.Message {
			t.Errorf("%s: %+v, %v", name, next, differs)
		}
	}
}

// patched keeps the patches that the API gets, and answers them.
type patched struct {
	mu     sync.Mutex
	bodies []string
	// code refuses the patches of this namespace, or all if it is empty, if it is not 0.
	code      int
	namespace string
}

func (p *patched) answer(to http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPatch {
		return false
	}
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies = append(p.bodies, r.URL.Path+" "+string(body))
	name := strings.Split(r.URL.Path, "/")[len(strings.Split(r.URL.Path, "/"))-2]
	switch {
	case p.code != 0 && strings.Contains(r.URL.Path, p.namespace):
		refuse(to, p.code)
	case strings.Contains(r.URL.Path, "/nodes/"):
		_, _ = io.WriteString(to, `{"metadata":{"name":"node1","uid":"uid-of-node1","resourceVersion":"9"}}`)
	default:
		fmt.Fprintf(to, `{"metadata":{"namespace":"shop","name":%q,"uid":"uid-of-%s","resourceVersion":"9"}}`, name, name)
	}
	return true
}

// all returns the patches so far, and forgets them.
func (p *patched) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.bodies
	p.bodies = nil
	return all
}

// newConditions runs Conditions of a node with the pods gated, plain, and reborn, which has another UID than that of its checkpoint.
func newConditions(t *testing.T) (*Conditions, *patched, *lockedBuffer) {
	t.Helper()
	gates := map[string]any{"spec": map[string]any{"readinessGates": []map[string]string{{"conditionType": NetworkReady}}}}
	o, w, log := newOwners(t, "node1", map[string]string{
		podsPath + "gated": objectJSON(t, "gated", gates), podsPath + "of-bank": objectJSON(t, "of-bank", map[string]any{"spec": gates["spec"], "metadata.namespace": "bank"}), podsPath + "plain": objectJSON(t, "plain", nil), podsPath + "reborn": objectJSON(t, "reborn", gates),
		"/api/v1/nodes/node1": `{"metadata":{"name":"node1","uid":"uid-of-node1"},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"RelinkPodsCutOff","status":"False","reason":"InterfacesWhole","message":"x","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`,
	})
	p := &patched{}
	w.answers(p.answer)
	c := NewConditions(o, slog.New(slog.NewTextHandler(log, nil)))
	startWatch(t, o)
	go c.Run(t.Context())
	await(t, "the pods", func() bool { return o.watch.HasSynced() })
	return c, p, log
}

func TestConditionsAreWritten(t *testing.T) {
	c, p, _ := newConditions(t)
	c.SetPod(podOf("plain"), false, "InterfaceLost", "x")
	c.SetPod(attachment.Pod{Namespace: "shop", Name: "reborn", UID: "uid-before"}, false, "InterfaceLost", "x")
	c.SetPod(attachment.Pod{Namespace: "shop", Name: "none", UID: "u"}, false, "InterfaceLost", "x")
	c.SetPod(podOf("gated"), true, "InterfacesWhole", "it was whole for a moment")
	c.SetPod(podOf("gated"), false, "InterfaceLost", "eth0 is lost")
	c.SetNode(false, "InterfacesWhole", "x") // As the API has it.
	await(t, "a patch", func() bool { return c.Counts()[sent] == 1 })
	time.Sleep(3 * debounce)
	all := p.all()
	if len(all) != 1 || !strings.HasPrefix(all[0], podsPath+"gated/status ") {
		t.Fatalf("%q", all)
	}
	var body struct {
		Metadata metav1.ObjectMeta
		Status   struct{ Conditions []condition }
	}
	if err := json.Unmarshal([]byte(strings.SplitN(all[0], " ", 2)[1]), &body); err != nil || body.Metadata.UID != "uid-of-gated" || len(body.Status.Conditions) != 1 {
		t.Fatalf("%s: %v", all[0], err)
	}
	if c := body.Status.Conditions[0]; c.Type != NetworkReady || c.Status != "False" || c.Reason != "InterfaceLost" || c.Message != "eth0 is lost" || time.Since(c.LastTransitionTime.Time) > time.Minute {
		t.Errorf("%+v", c)
	}
	c.SetNode(true, "InterfacesLost", "bond4")
	await(t, "the node", func() bool { return c.Counts()[sent] == 2 })
	if all := p.all(); len(all) != 1 || !strings.HasPrefix(all[0], `/api/v1/nodes/node1/status {"metadata":{"uid":"uid-of-node1"},"status":{"conditions":[{"type":"RelinkPodsCutOff","status":"True","reason":"InterfacesLost","message":"bond4","lastTransitionTime":`) {
		t.Errorf("%q", all)
	}
}

// A pod's name in a checkpoint comes from whoever calls the plugin.
func TestConditionsOfOddPods(t *testing.T) {
	c, p, _ := newConditions(t)
	for _, pod := range []attachment.Pod{
		{}, {Namespace: "shop", Name: "gated"}, {Namespace: "shop", Name: "../nodes/node1", UID: "u"}, {Namespace: "shop/pods/gated", Name: "status", UID: "u"},
		{Namespace: "shop", Name: "gated?fieldManager=x", UID: "uid-of-gated"}, {Name: "gated", UID: "uid-of-gated"}, {Namespace: "shop", Name: strings.Repeat("x", 300), UID: "u"},
	} {
		c.SetPod(pod, false, "InterfaceLost", "x")
	}
	time.Sleep(3 * debounce)
	if all := p.all(); len(all) > 0 {
		t.Errorf("%q", all)
	}
}

// Each refusal is logged once, and asked again seldom. Another object under the name is no refusal.
func TestConditionsAreRefused(t *testing.T) {
	c, p, log := newConditions(t)
	p.code = http.StatusConflict
	c.SetPod(podOf("gated"), false, "InterfaceLost", "eth0 is lost")
	await(t, "a conflict", func() bool { return c.Counts()[objectGone] == 1 })
	p.mu.Lock()
	p.code = http.StatusForbidden
	p.mu.Unlock()
	c.SetPod(podOf("gated"), false, "InterfaceLost", "net1 is lost")
	c.SetPod(podOf("reborn"), false, "InterfaceLost", "net1 is lost")
	await(t, "refusals", func() bool { return c.Counts()[refused] >= 2 })
	time.Sleep(time.Second)
	if n := c.Counts()[refused]; n > 4 {
		t.Errorf("%d tries", n)
	}
	if text := log.String(); strings.Count(text, "refuses conditions of pods") != 1 || strings.Contains(text, "the node") {
		t.Errorf("the log is\n%s", text)
	}
	p.mu.Lock()
	p.code = 0
	p.mu.Unlock()
	await(t, "both", func() bool { return c.Counts()[sent] == 2 })
	await(t, "the log", func() bool { return strings.Contains(log.String(), "takes conditions of pods") })
	if text := log.String(); strings.Count(text, "\n") != 2 {
		t.Errorf("the log is\n%s", text)
	}
}

// A policy of one namespace delays no pod of another.
func TestConditionsAreRefusedInANamespace(t *testing.T) {
	c, p, log := newConditions(t)
	p.code, p.namespace = http.StatusForbidden, "/namespaces/bank/"
	c.SetPod(attachment.Pod{Namespace: "bank", Name: "of-bank", UID: "uid-of-of-bank"}, false, "InterfaceLost", "eth0 is lost")
	await(t, "refusals", func() bool { return c.Counts()[refused] >= 3 }) // The next one comes 4 s later.
	began := time.Now()
	c.SetPod(podOf("gated"), false, "InterfaceLost", "eth0 is lost")
	c.SetNode(true, "InterfacesLost", "bond4")
	await(t, "the others", func() bool { return c.Counts()[sent] == 2 })
	if took := time.Since(began); took > 2*time.Second || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "refuses conditions of pods in bank") {
		t.Errorf("after %s, and the log is\n%s", took, log)
	}
}

// The end of a loss that comes again and again is written later each time.
func TestConditionsOfAPodThatComesAndGoes(t *testing.T) {
	c, p, _ := newConditions(t)
	began := time.Now()
	for time.Since(began) < 6*time.Second {
		c.SetPod(podOf("gated"), false, "InterfaceLost", "eth0 is lost")
		time.Sleep(150 * time.Millisecond)
		c.SetPod(podOf("gated"), true, "InterfacesWhole", "whole")
		time.Sleep(150 * time.Millisecond)
	}
	await(t, "the end", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return strings.Contains(p.bodies[len(p.bodies)-1], `"True"`)
	})
	if n := len(p.all()); n > 12 {
		t.Errorf("%d patches of 40 changes", n)
	}
}

// A loss of many devices, which go and come one after the other, is one loss.
func TestConditionsOfALossThatChanges(t *testing.T) {
	c, _, _ := newConditions(t)
	for i := range 6 {
		c.SetPod(podOf("gated"), false, "InterfaceLost", fmt.Sprint("lan", i))
		await(t, "a patch of the loss", func() bool { return c.Counts()[sent] > 0 })
		time.Sleep(2 * debounce)
	}
	await(t, "a patch of the last change", func() bool { return c.Counts()[sent] == 2 })
	time.Sleep(2 * debounce)
	if n := c.Counts()[sent]; n != 2 {
		t.Errorf("%d patches of a loss and its changes", n)
	}
	if hold := c.holds.Get("uid-of-gated"); hold != firstHold {
		t.Errorf("its end waits for %s", hold)
	}
}

// The API can answer after the pod has ended.
func TestConditionsOfAPodThatHasEnded(t *testing.T) {
	c, _, _ := newConditions(t)
	c.answered(podOf("ended"), nil, writtenCondition{condition: condition{Type: NetworkReady, Status: "False"}}, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if hold := c.holds.Get("uid-of-ended"); len(c.written) > 0 || hold > 0 {
		t.Errorf("kept: %v, %s", c.written, hold)
	}
}

// Many patches that fail at once are one failure.
func TestLengthen(t *testing.T) {
	b := flowcontrol.NewBackOff(time.Minute, time.Hour)
	for range 10 {
		lengthen(b, "pods")
	}
	if wait := b.Get("pods"); wait != time.Minute {
		t.Error(wait)
	}
}
