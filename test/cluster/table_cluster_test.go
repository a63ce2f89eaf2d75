package cluster

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/node"
)

// serves has the API serve what is in etcd's directory, and starts the agent anew with the kubeconfig. If made, the directory is new: it
// gets what deploy/ has, and the kubeconfig a token.
func (s *rowState) serves(t *testing.T, dir, kubeconfig string, made bool) {
	t.Helper()
	s.host.stop(t)
	s.serve(t, s.path(dir))
	if made {
		s.deploy(t)
		s.create(t, "/api/v1/namespaces", m{"metadata": m{"name": "shop"}}, &struct{}{})
		s.rig.config(t, s.proxy.URL, kubeconfig, "{token: "+s.token(t)+"}")
	}
	audits := s
	if dir == "etcd" { // The node's own cluster is back: the next row has other leases.
		audits = nil
	}
	s.startAgent(s.path(kubeconfig), audits)
}

// waits leaves the address .2 of lan reserved for the ordinal 0 of a new StatefulSet.
func (s *rowState) waits(t *testing.T, name string) made {
	t.Helper()
	set := s.set(t, name, 1)
	b := s.box(t, name, s.member(t, set, 0))
	s.add(t, b, "lan", 2)
	s.ends(t, b, "lan")
	s.delete(t, b.pod)
	return set
}

// keepsBecause makes as many passes as free what is proven dead. Each keeps .2 of lan for the reason, and tells the problem.
func (s *rowState) keepsBecause(t *testing.T, when, why string) {
	t.Helper()
	for range 2 {
		r := s.pass(t, when, "lan .2 kept: whether its owner is gone is not known | "+why+"")
		if len(r.Problems) != 1 || !strings.Contains(r.Problems[0], why) {
			t.Errorf("%s: problems %q, want %q", when, r.Problems, why)
		}
	}
	s.relink(t, 1, "audit", "unknown: ", why)
	s.relink(t, 1, "gc", "kept: ", why)
}

// agentSays waits until the agent has said it, and expects that it does not say it at each audit.
func (s *rowState) agentSays(t *testing.T, what string) {
	t.Helper()
	await(t, 30*time.Second, "a word of the agent: "+what, func() bool { return strings.Contains(s.host.log.String(), what) })
	time.Sleep(11 * time.Second) // The next audit.
	if text := s.host.log.String(); strings.Count(text, what) != 1 || strings.Count(text, "could not look at everything") != 1 {
		t.Errorf("the agent says %q not once:\n%s", what, text)
	}
}

// knowsCluster says whether the store knows a cluster.
func (s *rowState) knowsCluster(t *testing.T) bool {
	t.Helper()
	err := s.open(t, "lan").CheckCluster(context.Background(), zeroUID)
	if !errors.Is(err, lease.ErrNoCluster) && !errors.Is(err, lease.ErrCluster) {
		t.Fatal(err)
	}
	return errors.Is(err, lease.ErrCluster)
}

const foreignAPI = "the Kubernetes API is another cluster's: the UID of its namespace kube-system is "

// otherCluster has an agent with another cluster's kubeconfig. Nothing runs on the node, so no pod tells the clusters apart.
func otherCluster(t *testing.T, s *rowState) {
	unjudged, joined := s.rowState(t), s.rowState(t)
	set := s.waits(t, "foreign")
	unjudged.waits(t, "foreign-unjudged")
	joined.waits(t, "foreign-joined")
	s.relink(t, 0, "audit")
	s.relink(t, 0, "gc --dry-run")
	if s.knowsCluster(t) {
		t.Error("an audit or a dry run has noted the cluster")
	}
	s.keeps(t, "the node's own API")
	joined.keeps(t, "the node's own API")
	if !s.knowsCluster(t) {
		t.Error("the cluster is not noted")
	}
	s.runtime.forgets(s.daemon)
	defer s.runtime.knows(s.daemon, true)

	s.serves(t, "etcd-other", "other.conf", true)
	s.keepsBecause(t, "another cluster", foreignAPI)
	s.relink(t, 1, "gc", "Correct --kubeconfig; if this node has joined another cluster for good, run relink ipam reset-machine --network lan")
	unjudged.keepsBecause(t, "another cluster, and the store knows none", "it is not known whether the Kubernetes API is this node's: it knows no pod that runs here, and no owner for whom an address waits")
	unjudged.relink(t, 1, "audit", "Correct --kubeconfig; if it is right, start a pod on this node")
	s.agentSays(t, foreignAPI)

	// One of the networks is to be the other cluster's for good.
	joined.keepsBecause(t, "it has joined", foreignAPI)
	reset := exec.Command(filepath.Join(node.Bin, "relink"), "ipam", "reset-machine", "--network", "lan", "--data-dir", joined.leaseDir)
	if out, err := reset.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	joined.keepsBecause(t, "nothing runs here yet", "it is not known whether the Kubernetes API is this node's")
	b := joined.box(t, "of-the-other", s.podOn(t, "shop", "of-the-other"))
	s.runtime.knows(b, true)
	joined.reclaims(t, "a pod runs here", `lan .2 freed, free: its owner is gone: the Kubernetes API answers that it does not exist: statefulsets.apps "foreign-joined" not found`)
	s.keepsBecause(t, "another cluster, and its pod runs here", foreignAPI)
	s.runtime.forgets(b)

	s.serves(t, "etcd", "agent.conf", false)
	s.runtime.knows(s.daemon, true)
	s.goesOn(t, set)
	unjudged.keeps(t, "the node's own API is back")
}

// goesOn expects that the address still waits, and that it is freed when its owner is gone.
func (s *rowState) goesOn(t *testing.T, set made) {
	t.Helper()
	s.is(t, "lan", 2, "reserved for StatefulSet shop/"+set.name+", ordinal 0")
	s.keeps(t, "the node's own API is back")
	s.relink(t, 0, "audit")
	s.scale(t, set, m{"replicas": 0})
	s.reclaims(t, "scaled down", "lan .2 freed, free: its owner is gone | it is scaled to 0 replicas")
}

// emptiedAPI has an API whose etcd was lost. A new one is empty. One from an older backup has the same UIDs, and lacks what came later.
func emptiedAPI(t *testing.T, s *rowState) {
	s.host.stop(t)
	s.startAgent(s.path("agent.conf"), s)
	backup := s.backup(t)
	set := s.waits(t, "emptied")
	runs := s.box(t, "runs", s.podOn(t, "shop", "runs"))
	s.add(t, runs, "lan", 3)
	s.keeps(t, "the API is whole")
	unjudged := s.rowState(t)
	unjudged.waits(t, "emptied-unjudged")

	s.etcdctl(t, "snapshot", "restore", backup, "--data-dir="+s.path("etcd-old"))
	s.proxy.shows(t, runs.pod) // The agent's watch goes on from there, and does not show that the pod is not in the backup.
	s.serve(t, s.path("etcd-old"))
	const unknownPod = "the pod of sandbox runs runs here, and the Kubernetes API does not tell of it: "
	s.keepsBecause(t, "an older backup", unknownPod)
	s.agentSays(t, unknownPod)
	s.runtime.setDown(true)
	t.Cleanup(func() { s.runtime.setDown(false) })
	for range 2 {
		s.pass(t, "an older backup, and the runtime is away", "lan .2 kept: whether its owner is gone is not known | the container runtime did not tell of them: | the shim is away")
	}
	s.runtime.setDown(false)

	s.serves(t, "etcd-new", "new.conf", true)
	s.keepsBecause(t, "a new etcd", foreignAPI)
	unjudged.keepsBecause(t, "a new etcd, and the store knows no cluster", "it is not known whether the Kubernetes API is this node's")

	s.serves(t, "etcd", "agent.conf", false)
	s.goesOn(t, set)
	s.has(t, runs, "lan", 3)
}

// unreadableOwner has a pod on the node whose owner the agent cannot find: its annotation names a kind that the agent may not read. The
// API knows the pod, and that is all that counts.
func unreadableOwner(t *testing.T, s *rowState) {
	set := s.waits(t, "beside-unreadable")
	b := s.box(t, "names-a-secret", s.podOn(t, "shop", "names-a-secret", annotated("ipam.relink.dev/owner", "Secret/key")))
	s.runtime.knows(b, true)
	s.keeps(t, "its owner lives")
	s.scale(t, set, m{"replicas": 0})
	s.reclaims(t, "beside a pod whose owner cannot be read", "lan .2 freed, free: its owner is gone | it is scaled to 0 replicas")

	s.delete(t, b.pod) // By force: its sandbox is still there.
	other := s.rowState(t)
	set = other.waits(t, "beside-deleted")
	s.scale(t, set, m{"replicas": 0})
	other.keepsBecause(t, "a pod was deleted by force", "the pod of sandbox names-a-secret runs here, and the Kubernetes API does not tell of it: ")
	s.runtime.forgets(b)
	other.reclaims(t, "its sandbox is gone", "lan .2 freed, free: its owner is gone | it is scaled to 0 replicas")
}
