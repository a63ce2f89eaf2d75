package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/test/fresh"
)

// machine makes a virtual machine. KubeVirt makes a run of it (a VMI) at each start.
func (s *rowState) machine(t *testing.T, namespace, name string) made {
	t.Helper()
	return s.make(t, "VirtualMachine.kubevirt.io", namespace, name, nil)
}

func (s *rowState) vmi(t *testing.T, vm made) made {
	t.Helper()
	return s.make(t, "VirtualMachineInstance.kubevirt.io", vm.namespace, vm.name, by(vm))
}

// launcher makes the pod of a run. Its name is another one each time.
func (s *rowState) launcher(t *testing.T, run made, parts ...m) made {
	t.Helper()
	s.launchers++
	name := fmt.Sprintf("virt-launcher-%s-%05d", strings.ReplaceAll(run.name, ".", "-"), s.launchers)
	return s.listed(t, run, s.podOn(t, run.namespace, name, append([]m{by(run)}, parts...)...))
}

// asks are parts of a pod that asks for an address of the network.
func (s *rowState) asks(network string, last int) m {
	return annotated("ipam.relink.dev/"+network, s.at(network, last).String())
}

func machineRestarts(t *testing.T, s *rowState) {
	vm, fixed := s.machine(t, "shop", "restarted"), s.machine(t, "shop", "fixed")
	run, fixedRun := s.vmi(t, vm), s.vmi(t, fixed)
	first, fixedFirst := s.box(t, "first", s.launcher(t, run)), s.box(t, "fixed-first", s.launcher(t, fixedRun, s.asks("lan", 9)))
	s.add(t, first, "lan", 2)
	s.add(t, fixedFirst, "lan", 9)
	s.delete(t, run)
	s.delete(t, fixedRun)
	// The sandboxes before are there until their pods have ended.
	second, fixedSecond := s.box(t, "second", s.launcher(t, s.vmi(t, vm))), s.box(t, "fixed-second", s.launcher(t, s.vmi(t, fixed), s.asks("lan", 9)))
	s.add(t, second, "lan", 2)
	s.add(t, fixedSecond, "lan", 9)
	s.is(t, "lan", 2, "held by first and second for VirtualMachine shop/restarted")
	s.is(t, "lan", 9, "held by fixed-first and fixed-second for VirtualMachine shop/fixed")
	s.relink(t, 0, "audit", "both are of one owner: the new sandbox takes the address over, and the one before has not ended yet")
	s.keeps(t, "both sandboxes are there")
	s.ends(t, first, "lan")
	s.vanishes(t, fixedFirst)
	s.reclaims(t, "the sandboxes before are gone", "lan .9 freed, held: "+dead, "checkpoint of fixed-first freed: "+dead)
	s.is(t, "lan", 2, "held by second for VirtualMachine shop/restarted")
	s.is(t, "lan", 9, "held by fixed-second for VirtualMachine shop/fixed")
	s.has(t, second, "lan", 2)
	s.has(t, fixedSecond, "lan", 9)
}

// named is somebody with a name that is like others, and who makes the next pod.
type named struct {
	what, owner string
	pod         func() made
}

// Nobody is found by a part of a name: "db" is in "mydb", a.b and a.c have one hostname, and a joined name can be split in two
// ways.
func namesAlike(t *testing.T, s *rowState) {
	vm := func(namespace, name string) named {
		vm, run := s.machine(t, namespace, name), made{}
		return named{"VM " + namespace + " " + name, "VirtualMachine " + namespace + "/" + name, func() made {
			if run.name != "" {
				s.delete(t, run)
			}
			run = s.vmi(t, vm)
			return s.launcher(t, run)
		}}
	}
	set := func(kind, namespace, name string) named {
		set, pod := s.setOf(t, kind, namespace, name, m{"replicas": 1}), made{}
		return named{kind + " " + namespace + " " + name, "StatefulSet " + namespace + "/" + name + ", ordinal 0", func() made {
			if pod.name != "" {
				s.delete(t, pod)
			}
			pod = s.member(t, set, 0)
			return pod
		}}
	}
	loose := func(namespace, name, hostname string) named {
		return named{"pod " + namespace + " " + name, "", func() made {
			return s.podOn(t, namespace, name, m{"spec": m{"nodeName": "node1", "hostname": hostname, "containers": []m{{"name": "c", "image": "i"}}}})
		}}
	}
	all := []named{
		vm("shop", "db"), vm("shop", "mydb"), vm("shop", "a.b"), vm("shop", "a.c"), vm("bank", "db"), vm("shop", "db-0"), vm("shop", "shop"),
		set("StatefulSet.apps", "shop", "db"), set("StatefulSet.apps.kruise.io", "bank", "db"),
		loose("shop", "db", ""), loose("bank", "db", ""), loose("bank", "other", "db-0"), loose("shop", "mydb", "db"),
	}
	ownerOf := func(i int, pod made) string {
		if all[i].owner == "" {
			return itself(pod).Owner.String()
		}
		return all[i].owner
	}
	var want []string
	var boxes []*box
	for i, one := range all {
		b := s.box(t, fmt.Sprintf("b%d", i), one.pod())
		s.add(t, b, "lan", 2+i)
		s.is(t, "lan", 2+i, fmt.Sprintf("held by b%d for %s", i, ownerOf(i, b.pod)))
		boxes = append(boxes, b)
		becomes := "reserved"
		if one.owner == "" {
			becomes = "free"
		}
		want = append(want, fmt.Sprintf("lan .%d freed, %s: %s", 2+i, becomes, dead), fmt.Sprintf("checkpoint of b%d freed: %s", i, dead))
	}
	s.keeps(t, "all run")
	s.relink(t, 0, "audit", fmt.Sprintf("%d attachments fine", len(all)))
	s.vanishes(t, boxes...)
	s.reclaims(t, "all sandboxes are gone", want...)
	s.delete(t, made{kind: "VirtualMachine.kubevirt.io", namespace: "shop", name: "db"})
	s.reclaims(t, "one owner is gone", `lan .2 freed, free: its owner is gone: the Kubernetes API answers that it does not exist: virtualmachines.kubevirt.io "db" not found`)
	for i, one := range all {
		if i == 0 || one.owner == "" {
			continue
		}
		s.is(t, "lan", 2+i, "reserved for "+one.owner)
		s.add(t, s.box(t, fmt.Sprintf("again%d", i), one.pod()), "lan", 2+i)
	}
	s.mustNotAsk(t)
}

// mustNotAsk has machines that ask for each other's address: the name of one is in the name of the other, and of its pods.
func (s *rowState) mustNotAsk(t *testing.T) {
	long, short := s.machine(t, "shop", "cloud-init1"), s.machine(t, "shop", "cloud-init")
	longRun, shortRun := s.vmi(t, long), s.vmi(t, short)
	s.add(t, s.box(t, "long", s.launcher(t, longRun, s.asks("lan", 101))), "lan", 101)
	s.refused(t, s.box(t, "short", s.launcher(t, shortRun, s.asks("lan", 101))), "lan", 11, "held by eth0 of long on lan (VirtualMachine shop/cloud-init1)")
	s.add(t, s.box(t, "short", s.launcher(t, shortRun, s.asks("lan", 100))), "lan", 100)
	s.refused(t, s.box(t, "longer", s.launcher(t, longRun, s.asks("lan", 100))), "lan", 11, "held by eth0 of short on lan (VirtualMachine shop/cloud-init)")
}

func machineIsGone(t *testing.T, s *rowState) {
	alone := s.make(t, "VirtualMachineInstance.kubevirt.io", "shop", "alone", nil)
	deleted, stopped := s.machine(t, "shop", "deleted"), s.machine(t, "shop", "stopped")
	deletedRun, stoppedRun := s.vmi(t, deleted), s.vmi(t, stopped)
	for i, run := range []made{alone, deletedRun, stoppedRun} {
		b := s.box(t, run.name, s.launcher(t, run))
		s.add(t, b, "lan", 2+i)
		s.ends(t, b, "lan")
		s.delete(t, b.pod)
	}
	s.is(t, "lan", 2, "reserved for VirtualMachineInstance shop/alone")
	s.keeps(t, "their runs are there")
	s.delete(t, alone)
	s.delete(t, deletedRun)
	s.delete(t, stoppedRun)
	s.reclaims(t, "all are stopped", `lan .2 freed, free: its owner is gone: the Kubernetes API answers that it does not exist: virtualmachineinstances.kubevirt.io "alone" not found`)
	s.delete(t, deleted)
	s.reclaims(t, "one is deleted while it is stopped", `lan .3 freed, free: virtualmachines.kubevirt.io "deleted" not found`)
	s.judged(t, attachment.Owner{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "shop", Name: "stopped", UID: string(stopped.uid)}, owner.Exists, "the VirtualMachine shop/stopped exists with this UID")
	s.add(t, s.box(t, "started", s.launcher(t, s.vmi(t, stopped))), "lan", 4)
}

// migrated also has what KubeVirt never does: both pods of the migration on one node.
func migrated(t *testing.T, s *rowState) {
	vm := s.machine(t, "shop", "migrated")
	run := s.vmi(t, vm)
	to := m{"metadata.labels": m{"kubevirt.io/migrationJobUID": zeroUID}}
	source, target := s.box(t, "source", s.launcher(t, run)), s.box(t, "target", s.launcher(t, run, to))
	s.add(t, source, "lan", 2)
	s.add(t, target, "lan", 2)
	other := s.rowState(t) // The source's node, without the target.
	left := other.box(t, "left", s.launcher(t, run))
	other.add(t, left, "lan", 2)
	for _, b := range []*box{source, left} {
		s.merge(t, b.pod.path()+"/status", m{"status": m{"phase": "Succeeded"}})
	}
	s.keeps(t, "the source has completed, and its sandbox is there")
	s.vanishes(t, source, left)
	s.reclaims(t, "the source's sandbox is gone", "lan .2 freed, held: "+dead, "checkpoint of source freed: "+dead)
	other.reclaims(t, "the source's sandbox is gone", "lan .2 freed, reserved: "+dead, "checkpoint of left freed: "+dead)
	s.delete(t, source.pod)
	s.delete(t, left.pod)
	s.gc(t, "lan", source)
	s.gc(t, "lan")
	s.keeps(t, "the source's pod is deleted")
	other.keeps(t, "the machine can come back")
	s.is(t, "lan", 2, "held by target for VirtualMachine shop/migrated")
	s.has(t, target, "lan", 2)
	s.relink(t, 0, "audit", "1 attachment fine")
}

func staticChanges(t *testing.T, s *rowState) {
	vm, other := s.machine(t, "shop", "static"), s.machine(t, "shop", "static-other")
	run := s.vmi(t, vm)
	first := s.box(t, "first", s.launcher(t, run, s.asks("lan", 10)))
	s.add(t, first, "lan", 10)
	s.delete(t, run)
	run = s.vmi(t, vm)
	second := s.box(t, "second", s.launcher(t, run, s.asks("lan", 20)))
	s.add(t, second, "lan", 20)
	s.is(t, "lan", 10, "held by first for VirtualMachine shop/static")
	s.ends(t, first, "lan")
	s.is(t, "lan", 10, "free")
	s.add(t, s.box(t, "other", s.launcher(t, s.vmi(t, other), s.asks("lan", 10))), "lan", 10)
	s.ends(t, second, "lan")
	s.keeps(t, "it waits with its second address")
	s.refused(t, s.box(t, "back", s.launcher(t, run, s.asks("lan", 10))), "lan", 11, "held by eth0 of other on lan (VirtualMachine shop/static-other)")
	strange := s.launcher(t, run, annotated("ipam.relink.dev/lan", "192.0.2.7"))
	s.refused(t, s.box(t, "strange", strange), "lan", 7, "annotation ipam.relink.dev/lan")
	s.is(t, "lan", 20, "reserved for VirtualMachine shop/static")
	s.add(t, s.box(t, "third", s.launcher(t, run, s.asks("lan", 30))), "lan", 30)
	s.is(t, "lan", 20, "free")
}

// The interfaces of machines behind Multus had other names than a GC had made for them: it called healthy machines lost, and
// its next version deleted living ones.
func replayMultus(t *testing.T, s *rowState) {
	const network = "lan.1"
	vm := s.machine(t, "shop", "my.vm")
	claims := `[{"name": "lan.1", "interface": "net1", "ipam-claim-reference": "my.vm.one"}, {"name": "lan.1", "interface": "net2", "ipam-claim-reference": "my.vm.two"}]`
	for _, name := range []string{"my.vm.one", "my.vm.two"} {
		s.make(t, "IPAMClaim.k8s.cni.cncf.io", "shop", name, m{"spec": m{"network": network, "interface": "x"}})
	}
	start := func(id string) *box {
		run := s.vmi(t, vm)
		b := s.box(t, id, s.launcher(t, run, annotated("k8s.v1.cni.cncf.io/networks", claims)))
		// The default network is somebody else's.
		fresh.Run(t, b.netns, "ip link add eth0 type veth peer name eth0-peer; ip address add 10.244.0.5/24 dev eth0; ip link set eth0 up")
		s.add(t, b, network+"@net1", 2)
		s.add(t, b, network+"@net2", 3)
		return b
	}
	healthy := func(b *box) {
		t.Helper()
		s.keeps(t, b.id+" is healthy")
		s.relink(t, 0, "audit", "2 attachments fine; 2 leases, 0 reserved")
		s.has(t, b, network+"@net1", 2)
		s.has(t, b, network+"@net2", 3)
	}
	first := start("first")
	healthy(first)
	s.del(t, first, network+"@net2") // One interface is unplugged. The other is on the same network.
	s.keeps(t, "unplugged")
	s.has(t, first, network+"@net1", 2)
	s.is(t, network, 3, "reserved for VirtualMachine shop/my.vm")
	s.vanishes(t, first)
	s.delete(t, made{kind: "VirtualMachineInstance.kubevirt.io", namespace: "shop", name: "my.vm"})
	second := start("second")
	s.gc(t, network, first)
	s.reclaims(t, "the first one is gone", "checkpoint of first freed: "+dead)
	healthy(second)
}

// A stopped machine has no pod, and no annotation about its second network. A GC gave its address there away.
func replayStopped(t *testing.T, s *rowState) {
	vm := s.machine(t, "shop", "halted")
	run := s.vmi(t, vm)
	b := s.box(t, "halted", s.launcher(t, run))
	s.add(t, b, "lan", 2)
	s.add(t, b, "second@net1", 2)
	s.delete(t, run)
	s.delete(t, b.pod)
	s.ends(t, b, "lan", "second@net1")
	s.keeps(t, "stopped")
	s.gc(t, "second")
	s.add(t, s.box(t, "stranger", s.podOn(t, "shop", "halted-stranger")), "second", 3)
	b = s.box(t, "started", s.launcher(t, s.vmi(t, vm)))
	s.add(t, b, "lan", 2)
	s.add(t, b, "second@net1", 2)
}

// A machine got another network for its first interface, and with it another address on the second one.
func replayTwoInterfaces(t *testing.T, s *rowState) {
	vm := s.machine(t, "shop", "two")
	run := s.vmi(t, vm)
	b := s.box(t, "before", s.launcher(t, run))
	s.add(t, b, "lan", 2)
	s.add(t, b, "second@net1", 2)
	s.delete(t, run)
	s.ends(t, b, "lan", "second@net1")
	s.add(t, s.box(t, "stranger", s.podOn(t, "shop", "two-stranger")), "second", 3)
	b = s.box(t, "after", s.launcher(t, s.vmi(t, vm)))
	s.add(t, b, "other", 2)
	s.add(t, b, "second@net1", 2)
	s.grows(t, b)
	s.keeps(t, "it may be plugged into the first network again")
}
