package cluster

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/test/fresh"
)

// An agent knows the pods of its node, and no others: its memory does not grow with the cluster. A node with 250 pods, in a cluster of
// 5,000, with an API that has them all.
func TestAgentInALargeCluster(t *testing.T) {
	const (
		allPods, podsHere, podsOfASet = 5000, 250, 50
		most                          = 60e6 / (1 << 20) // MiB
	)
	fresh.Run(t, "", "ip link set lo up")
	c := newChaos(t, "10.9.0.0/16")
	inparallel.Do(8, allPods-podsHere, func(i int) {
		parts := m{"metadata.ownerReferences": []m{{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": fmt.Sprintf("app-%d", i/20), "uid": zeroUID, "controller": true}}}
		c.make("Pod", fmt.Sprintf("app-%d-%d", i/20, i), bigPod(fmt.Sprintf("other-%d", i/podsHere), parts))
	})
	pods := make([]*pod, podsHere)
	for i := range podsHere / podsOfASet {
		of := c.make("StatefulSet.apps", fmt.Sprintf("web%d", i), setSpec(fmt.Sprintf("web%d", i), m{"replicas": podsOfASet}))
		inparallel.Do(8, podsOfASet, func(k int) {
			made := c.make("Pod", fmt.Sprintf("%s-%d", of.name, k), bigPod("node1", by(of)))
			pods[i*podsOfASet+k] = &pod{made: made, owner: lasting(of, attachment.OrdinalOf(k)).Owner, lasts: true}
		})
	}
	if t.Failed() {
		t.FailNow()
	}
	one, _ := c.api.try(http.MethodGet, pods[0].path(), "", nil)
	t.Logf("%d pods of %d bytes each as JSON, %d of them on this node", allPods, len(one), podsHere)
	if len(one) < 8<<10 || len(one) > 12<<10 {
		t.Errorf("a pod has %d bytes, and pods of clusters have 8 to 10 KB", len(one))
	}

	endAgent := c.runAgent()
	agent := func() control.Status {
		s, err := control.Client{Path: c.agentSocket}.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	pid := agent().PID
	measure := func(when string) {
		before := usedBy(t, pid)
		const length = 5 * time.Second
		time.Sleep(length)
		used := usedBy(t, pid) - before
		memory := memoryOf(t, pid)
		t.Logf("%s: %.1f MiB resident, %.1f MiB of it its own, %.1f MiB at most since the start; %.2f ms of processor time per second", when,
			memory["VmRSS"], memory["RssAnon"], memory["VmHWM"], used.Seconds()*1000/length.Seconds())
		if memory["VmHWM"] >= most {
			t.Errorf("%s: the agent has had %.1f MiB, and must have less than %.1f", when, memory["VmHWM"], most)
		}
	}
	measure("at the start")
	r := rand.New(rand.NewPCG(1, 1))
	for _, p := range pods {
		for is := false; !is && !c.over(); { // Some ADDs are killed, as in the chaos.
			is = c.run(r, &cell{of: p.owner, lasts: true, pod: podOf(p.made), macvlan: true})
		}
	}
	measure("after an ADD of each pod")
	attached := time.Now()
	await(t, time.Minute, "an audit", func() bool {
		a := agent().Audit
		return a != nil && a.Time.After(attached)
	})
	if a := agent().Audit; a.Findings["fine"] != podsHere || a.Errors > 0 {
		t.Errorf("the audit has %+v", a)
	}
	measure("after an audit")
	endAgent(true)
}

// bigPod is a pod as large as those of real clusters are.
func bigPod(node string, parts m) m {
	var containers []m
	for i := range 2 {
		var env, mounts []m
		for k := range 8 {
			env = append(env, m{"name": fmt.Sprintf("SETTING_NUMBER_%d", k), "value": strings.Repeat("v", 40)})
			mounts = append(mounts, m{"name": fmt.Sprintf("volume-%d", k%4), "mountPath": fmt.Sprintf("/var/lib/app/part-%d", k)})
		}
		probe := m{"httpGet": m{"path": "/healthz", "port": 8080}, "periodSeconds": 10}
		containers = append(containers, m{
			"name": fmt.Sprintf("container-%d", i), "image": "registry.example.org/team/application@sha256:" + strings.Repeat("0", 64), "env": env, "volumeMounts": mounts,
			"livenessProbe": probe, "readinessProbe": probe, "resources": m{"limits": m{"cpu": "1", "memory": "1Gi"}, "requests": m{"cpu": "100m", "memory": "128Mi"}},
		})
	}
	var volumes []m
	for i := range 4 {
		volumes = append(volumes, m{"name": fmt.Sprintf("volume-%d", i), "emptyDir": m{}})
	}
	metadata := m{
		"metadata.labels":      m{"app.kubernetes.io/name": "application", "app.kubernetes.io/instance": "production", "pod-template-hash": "7c9f8d6b5"},
		"metadata.annotations": m{"checksum/config": strings.Repeat("a", 64), "k8s.v1.cni.cncf.io/network-status": strings.Repeat("s", 800)},
	}
	return with(metadata, parts, m{"spec": m{"nodeName": node, "containers": containers, "volumes": volumes}})
}

// memoryOf returns what /proc says about the memory of a process, in MiB.
func memoryOf(t *testing.T, pid int) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/status", pid))) {
		words := strings.Fields(line)
		if len(words) == 3 && words[2] == "kB" {
			kB, err := strconv.ParseFloat(words[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			all[strings.TrimSuffix(words[0], ":")] = kB / 1024
		}
	}
	for _, field := range []string{"VmRSS", "RssAnon", "VmHWM"} {
		if all[field] == 0 {
			t.Fatalf("the process %d has no %s", pid, field)
		}
	}
	return all
}

// usedBy is the processor time that all threads of the process have used.
func usedBy(t *testing.T, pid int) (sum time.Duration) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("the process %d has no threads: %v", pid, err)
	}
	for _, file := range files {
		first, _, _ := strings.Cut(read(t, file), " ")
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n)
	}
	return sum
}
