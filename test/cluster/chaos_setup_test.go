package cluster

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/node"
)

// newChaos makes a cluster with its kinds, and a node without an agent.
func newChaos(t *testing.T, pool string) *chaos {
	t.Helper()
	c := &chaos{t: t, pool: pool, api: startAPI(t), truth: newTruth(t), counts: map[string]int{}}
	c.api.deploy(t)
	c.api.create(t, "/api/v1/namespaces", m{"metadata": m{"name": "shop"}}, &struct{}{})
	c.api.definition(t, "kubevirt.io", "VirtualMachine", "virtualmachines", []string{"v1"}, nil)
	c.api.definition(t, "kubevirt.io", "VirtualMachineInstance", "virtualmachineinstances", []string{"v1"}, nil)
	c.api.definition(t, "apps.kruise.io", "StatefulSet", "statefulsets", []string{"v1beta1"}, nil)
	c.kubeconfig = c.api.config(t, "https://"+apiAddress, "agent.conf", "{token: "+c.api.token(t)+"}")
	n := node.New(t)
	c.store, c.dir = n.Store, t.TempDir()
	c.leaseDir, c.agentSocket, c.criSocket = filepath.Join(c.dir, "leases"), filepath.Join(c.dir, "agent.sock"), filepath.Join(c.dir, "cri.sock")
	if err := os.Mkdir(c.leaseDir, 0o700); err != nil {
		t.Fatal(err)
	}
	c.env = []string{control.SocketEnv + "=" + c.agentSocket, lease.DirEnv + "=" + c.leaseDir}
	c.cri = serveCRI(t, c.truth, c.criSocket)
	t.Cleanup(func() { // A test that fails leaves some.
		for _, b := range c.truth.cells {
			fresh.Remove(t, b.netns)
		}
	})
	return c
}

// workloads are all that come and go.
func (c *chaos) workloads() []workload {
	crew := func() crew { return crew{chaos: c} }
	return []workload{
		&set{crew: crew(), kind: "StatefulSet.apps", name: "web", pods: map[int]*pod{}},
		&set{crew: crew(), kind: "StatefulSet.apps.kruise.io", name: "web-0", pods: map[int]*pod{}},
		&set{crew: crew(), kind: "StatefulSet.apps", name: "asks", pods: map[int]*pod{}, addresses: "10.9.0.21,10.9.0.22,10.9.0.23,10.9.0.24,10.9.0.25"},
		&loose{crew: crew(), name: "shop"}, &loose{crew: crew(), name: "backup", jobs: true}, &loose{crew: crew(), name: "tool", alone: true},
		&machine{crew: crew(), name: "db"}, &machine{crew: crew(), name: "mydb"}, &machine{crew: crew(), name: "test", alone: true},
		&teamOfPods{crew: crew(), name: "broker"},
	}
}

// over says that the test ends: its time is over, or it has failed.
func (c *chaos) over() bool { return c.ended.Load() || c.t.Failed() }

// pause waits for any time up to so many milliseconds.
func (c *chaos) pause(r *rand.Rand, most int) {
	time.Sleep(time.Duration(r.IntN(most)) * time.Millisecond)
}

// rest waits for any time, at most for longer than the grace, or until the test ends.
func (c *chaos) rest(r *rand.Rand) {
	for until := time.Now().Add(time.Duration(r.Int64N(int64(2 * chaosGrace)))); time.Now().Before(until) && !c.over(); {
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *chaos) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what]++
}

// ask asks the API until it answers, and returns the status.
func (c *chaos) ask(method, path, contentType string, body, into any) int {
	c.steps.Add(1)
	var b []byte
	var err error
	if body != nil { // The API would take a body "null" for options of a DELETE, and not look at those in the path.
		b, err = json.Marshal(body)
	}
	if err != nil {
		c.t.Error(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		answer, status := c.api.try(method, path, contentType, b)
		var says struct{ Details struct{ Name string } }
		switch {
		case status >= 200 && status <= 299:
			if into != nil {
				err = json.Unmarshal(answer, into)
			}
			if err != nil {
				c.t.Errorf("%s %s: %v\n%s", method, path, err, answer)
			}
			return status
		case (status == http.StatusNotFound || status == http.StatusConflict) && json.Unmarshal(answer, &says) == nil && says.Details.Name != "":
			return status // It is about the object. An API that has just started does not have all paths.
		case time.Now().After(deadline):
			c.t.Errorf("%s %s: status %d\n%s", method, path, status, answer)
			return status
		}
	}
}

// make makes an object. The API may be away: it is asked until it answers.
func (c *chaos) make(kind, name string, parts m) made {
	var answer struct {
		Metadata struct{ UID types.UID }
	}
	at := fmt.Sprintf(collections[kind], "shop")
	if c.ask(http.MethodPost, at, "application/json", object(kind, name, parts), &answer) == http.StatusConflict { // It was made, and the answer was lost.
		c.ask(http.MethodGet, at+"/"+name, "", nil, &answer)
	}
	if answer.Metadata.UID == "" {
		c.t.Errorf("the API gives no UID for the %s %s", kind, name)
	}
	return made{kind, "shop", name, answer.Metadata.UID}
}

func (c *chaos) delete(o made) {
	c.ask(http.MethodDelete, o.path()+"?gracePeriodSeconds=0", "", nil, nil)
}

func (c *chaos) patch(path string, change m) {
	c.ask(http.MethodPatch, path, "application/merge-patch+json", change, nil)
}

func (c *chaos) String() string { return fmt.Sprintf("%d steps; %v", c.steps.Load(), c.counts) }
