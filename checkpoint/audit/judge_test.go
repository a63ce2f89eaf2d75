package audit

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// noon is the time of the tests.
var noon = time.Date(2026, 2, 3, 12, 0, 0, 0, time.UTC)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// namespace returns the identity of the nth namespace.
func namespace(n uint64) attachment.Namespace {
	return attachment.Namespace{Path: fmt.Sprintf("/run/netns/n%d", n), BootID: "boot", Device: 4, Inode: n, Cookie: 1000 + n}
}

// web is an ordinal of a StatefulSet.
func web(n int) attachment.Owner {
	return attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "web", UID: "u1", Ordinal: attachment.OrdinalOf(n)}
}

// newSnapshot is a node with the runtime and the API at hand, and nothing on it.
func newSnapshot() Snapshot {
	return Snapshot{
		BootID: "boot", Time: noon, Networks: []Network{{Name: "lan", StoreTime: noon}, {Name: "san", StoreTime: noon}},
		Sandboxes: Sandboxes{
			Live: map[attachment.NamespaceFile]LiveNamespace{}, Runtime: map[string]sandbox.RuntimeSandbox{}, Proofs: map[attachment.Namespace]sandbox.Evidence{},
			Judged: map[*lease.Holder]sandbox.Judgement{},
		},
		Owners: Owners{Judged: map[attachment.Owner]owner.Judgement{}},
	}
}

// runPod starts a pod in a namespace of its own.
func (w *Snapshot) runPod(id string, n uint64, pod string) {
	w.Sandboxes.Live[namespace(n).File()] = LiveNamespace{Namespace: namespace(n)}
	w.Sandboxes.Runtime[id] = sandbox.RuntimeSandbox{ContainerID: id, Ready: true, Pod: attachment.Pod{Namespace: "shop", Name: pod}}
}

// attach gives the sandbox an interface that relink made an hour ago, with a checkpoint and a lease.
func (w *Snapshot) attach(id string, n uint64, ifName, network, address string, of attachment.Owner) {
	w.record(id, n, ifName, network, address, of)
	w.hold(id, n, ifName, network, address, of)
	w.address(n, address, ifName, w.Attached[len(w.Attached)-1].Index, 7)
}

func (w *Snapshot) record(id string, n uint64, ifName, network, address string, of attachment.Owner) *Attached {
	a := Attached{Owner: of, Interface: Fine, Index: len(w.Attached) + 2, LeaseStore: network, Record: checkpoint.Record{
		Attachment: attachment.Key{Network: network, ContainerID: id, IfName: ifName}, Namespace: namespace(n), CapturedAt: noon.Add(-time.Hour),
		Pod: w.Sandboxes.Runtime[id].Pod, Interface: netstate.Interface{Link: netstate.Link{Name: ifName}},
	}}
	if address != "" {
		a.Assigned = []netip.Addr{addr(address)}
	}
	w.Attached = append(w.Attached, a)
	return &w.Attached[len(w.Attached)-1]
}

func (w *Snapshot) network(name string) *Network {
	return &w.Networks[slices.IndexFunc(w.Networks, func(n Network) bool { return n.Name == name })]
}

func (w *Snapshot) hold(id string, n uint64, ifName, network, address string, of attachment.Owner) {
	h := lease.Holder{ContainerID: id, IfName: ifName, Namespace: namespace(n), Since: noon.Add(-time.Hour)}
	net := w.network(network)
	if i := slices.IndexFunc(net.Leases, func(l lease.Lease) bool { return l.Address == addr(address) }); i >= 0 {
		net.Leases[i].Holders = append(net.Leases[i].Holders, h)
		return
	}
	net.Leases = append(net.Leases, lease.Lease{Address: addr(address), Network: network, State: lease.Held, Owner: of, Holders: []lease.Holder{h}})
}

func (w *Snapshot) reserve(network, address, ifName string, of attachment.Owner) *lease.Lease {
	net := w.network(network)
	net.Leases = append(net.Leases, lease.Lease{
		Address: addr(address), Network: network, State: lease.Reserved, Owner: of, ReleasedAt: noon.Add(-time.Hour), Last: lease.Holder{ContainerID: "last", IfName: ifName},
	})
	return &net.Leases[len(net.Leases)-1]
}

// address puts an address into a sandbox, on a device that is on a parent in the host.
func (w *Snapshot) address(n uint64, address, device string, index, parent int) {
	live := w.Sandboxes.Live[namespace(n).File()]
	live.Addresses = append(live.Addresses, DeviceAddress{Address: addr(address), Device: device, Index: index, Parent: parent})
	w.Sandboxes.Live[namespace(n).File()] = live
}

// endSandbox removes the namespace, and the runtime forgets the sandbox.
func (w *Snapshot) endSandbox(id string, n uint64) {
	delete(w.Sandboxes.Live, namespace(n).File())
	delete(w.Sandboxes.Runtime, id)
	w.Sandboxes.Proofs[namespace(n)] = sandbox.Evidence{Verdict: sandbox.VerdictGone, Reason: "no mount, process or socket of the node keeps it"}
}

func (w *Snapshot) standing(o attachment.Owner, s owner.Standing, why string) {
	w.Owners.Judged[o] = owner.Judgement{Owner: o, Standing: s, Reason: why}
}

// lines are the findings in short, those that are fine last.
func lines(r NodeReport) (all []string) {
	for _, f := range r.Findings {
		line := fmt.Sprintf("%s: %s", f.Severity, f.Kind)
		if f.Attachment.ContainerID != "" {
			line += " " + f.Attachment.ContainerID + "/" + f.Attachment.IfName
		}
		if f.Address.IsValid() {
			line += " " + f.Address.String()
		}
		if f.Proven {
			line += " proven"
		}
		all = append(all, line)
	}
	return all
}

const gone = "its network namespace is gone: no mount, process or socket of the node keeps it; "

func TestFindings(t *testing.T) {
	for name, test := range map[string]struct {
		make func(w *Snapshot)
		// want are the findings that are not fine. why is the evidence of the first of them.
		want []string
		why  string
	}{
		"a healthy pod": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
		}},
		"a VM on Multus, with somebody else's default network and a dotted name": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "virt-launcher-db.prod.example-x7k2p")
			w.address(1, "10.244.0.9", "eth0", 2, 0)
			w.attach("c1", 1, "net1", "lan", "10.3.0.2", attachment.Owner{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "shop", Name: "db.prod.example", UID: "u2"})
		}},
		"a VM whose guest has the address: nobody in the sandbox has it": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "vm")
			w.record("c1", 1, "net1", "lan", "10.3.0.2", web(0))
			w.hold("c1", 1, "net1", "lan", "10.3.0.2", web(0))
		}},
		"one network twice on one pod": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.attach("c1", 1, "net1", "lan", "10.3.0.2", web(0))
			w.attach("c1", 1, "net2", "lan", "10.3.0.3", web(0))
		}},
		"one address twice in one pod": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.address(1, "10.3.0.2", "dummy0", 9, 7)
		}},
		"another CNI's pod": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "other")
			w.address(1, "10.3.0.2", "eth0", 2, 7)
		}},
		"pods whose names would be one if they were joined": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "a.b")
			w.runPod("c2", 2, "a")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.2", attachment.Owner{Kind: attachment.OwnerPod, Namespace: "shop", Name: "a.b"})
			w.attach("c2", 2, "eth0", "lan", "10.3.0.3", attachment.Owner{Kind: attachment.OwnerPod, Namespace: "b.shop", Name: "a"})
		}},
		"the interface of a plugin that writes no checkpoints": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.hold("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.address(1, "10.3.0.2", "eth0", 2, 7)
		}},
		"a lost interface": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.Attached[0].Interface, w.Attached[0].Reason = LostInterface, "bond4.3 is not there"
		}, want: []string{"error: lost interface c1/eth0 10.3.0.2"}, why: "bond4.3 is not there"},
		"a wrong interface": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.Attached[0].Interface, w.Attached[0].Reason = WrongInterface, "mtu 1400, not 1500"
		}, want: []string{"error: wrong interface c1/eth0 10.3.0.2"}, why: "mtu 1400, not 1500"},
		"an interface that nobody could look at": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.Attached[0].Interface, w.Attached[0].Reason = Unknown, "permission denied"
		}, want: []string{"information: unknown c1/eth0 10.3.0.2"}, why: "its interface could not be looked at: permission denied"},
		"an address without a lease": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.network("lan").Leases = nil
		}, want: []string{"error: sandbox without lease c1/eth0 10.3.0.2"},
			why: "relink-ipam gave it 10.3.0.2, and eth0 has that address; no lease has it as a holder: another pod can be given the address. Make the pod anew"},
		"an address whose lease somebody else has by now": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.network("lan").Leases[0].Holders[0].ContainerID = "c9"
			w.network("lan").Leases[0].Holders[0].Namespace = namespace(9)
			w.runPod("c9", 9, "web-9")
		}, want: []string{"error: sandbox without lease c1/eth0 10.3.0.2"}},
		"a lease under a new name of the network": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.record("c1", 1, "eth0", "lan-old", "10.3.0.2", web(0))
			w.hold("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.address(1, "10.3.0.2", "eth0", 2, 7)
		}},
		"leases that cannot be read": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.network("lan").Leases, w.network("lan").Problem = nil, "store lan.db: not usable"
		}, want: []string{"error: unknown", "information: unknown c1/eth0 10.3.0.2"}, why: "the leases of the network cannot be read: store lan.db: not usable"},
		"leases in another directory": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.record("c1", 1, "eth0", "lan", "10.3.0.2", web(0)).LeaseDir = "/srv/leases"
			w.address(1, "10.3.0.2", "eth0", 2, 7)
		}, want: []string{"information: unknown c1/eth0 10.3.0.2"}, why: "whether it holds 10.3.0.2 is not known: its configuration keeps the leases in /srv/leases, which was not read"},
		"a sandbox that is gone": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.endSandbox("c1", 1)
		}, want: []string{"information: lease without sandbox c1/eth0 10.3.0.2 proven", "information: checkpoint without sandbox c1/eth0 proven"},
			why: gone + "the container runtime does not have the sandbox"},
		"a sandbox that is gone, and the runtime still has it": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.endSandbox("c1", 1)
			w.Sandboxes.Runtime["c1"] = sandbox.RuntimeSandbox{ContainerID: "c1"}
		}, want: []string{"information: lease without sandbox c1/eth0 10.3.0.2", "information: checkpoint without sandbox c1/eth0"},
			why: gone + "the container runtime still has the sandbox, stopped: it owes a DEL"},
		"a sandbox that is gone, and the runtime calls it ready": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.hold("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.endSandbox("c1", 1)
			w.Sandboxes.Runtime["c1"] = sandbox.RuntimeSandbox{ContainerID: "c1", Ready: true}
		}, want: []string{"information: lease without sandbox c1/eth0 10.3.0.2"}, why: gone + "but the container runtime says that the sandbox is ready"},
		"a sandbox that is gone, and a runtime that does not answer": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			w.hold("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.endSandbox("c1", 1)
			w.Sandboxes.NotAsked = "it does not answer"
		}, want: []string{"information: lease without sandbox c1/eth0 10.3.0.2"},
			why: gone + "the container runtime did not say that it has no such sandbox: it does not answer"},
		"a namespace that may be there": {make: func(w *Snapshot) {
			w.hold("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.Sandboxes.Proofs[namespace(1)] = sandbox.Evidence{Verdict: sandbox.VerdictUnknown, Reason: "process 7 may not be looked at"}
		}, want: []string{"information: unknown c1/eth0 10.3.0.2"}, why: "whether its network namespace is gone is not known: process 7 may not be looked at"},
		"a namespace that nobody looked for": {make: func(w *Snapshot) { w.hold("c1", 1, "eth0", "lan", "10.3.0.2", web(0)) },
			want: []string{"information: unknown c1/eth0 10.3.0.2"}, why: "whether its network namespace is gone is not known: nobody has looked for its network namespace"},
		"another namespace with the inode": {make: func(w *Snapshot) {
			w.hold("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.endSandbox("c1", 1)
			other := namespace(1)
			other.Cookie = 77
			w.Sandboxes.Live[other.File()] = LiveNamespace{Namespace: other}
		}, want: []string{"information: lease without sandbox c1/eth0 10.3.0.2 proven"}},
		"an ADD that is under way": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			delete(w.Sandboxes.Runtime, "c1")
			w.hold("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
			w.network("lan").Leases[0].Holders[0].Since = noon.Add(-time.Minute)
		}, want: []string{"information: unknown c1/eth0 10.3.0.2"}, why: "under way: it was given 10.3.0.2 less than 10m0s ago and has no checkpoint; its ADD may not be over"},
		"a sandbox that the runtime does not know": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "web-0")
			delete(w.Sandboxes.Runtime, "c1")
			w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
		}, want: []string{"information: unknown c1/eth0 10.3.0.2"},
			why: "its network namespace is there, at /run/netns/n1, and the container runtime does not have the sandbox: it is another runtime's, or was left behind"},
		"a sandbox whose container ID nobody knew": {make: func(w *Snapshot) {
			w.runPod("c1", 1, "")
			delete(w.Sandboxes.Runtime, "c1")
			w.record(checkpoint.UnnamedID(namespace(1)), 1, "eth0", "unknown", "", attachment.Owner{})
		}},
		"no namespace recorded, and judged gone": {make: func(w *Snapshot) { w.holdUnrecorded(sandbox.VerdictGone, "no network namespace has the address") },
			want: []string{"information: lease without sandbox c1/eth0 10.3.0.2 proven"}, why: "no network namespace has the address; the container runtime does not have the sandbox"},
		"no namespace recorded, and a DEL is due": {make: func(w *Snapshot) { w.holdUnrecorded(sandbox.VerdictDELDue, "the CNI cache has it") },
			want: []string{"information: lease without sandbox c1/eth0 10.3.0.2"}, why: "the CNI cache has it"},
		"no namespace recorded, and unknown": {make: func(w *Snapshot) { w.holdUnrecorded(sandbox.VerdictUnknown, "the CNI cache has it") },
			want: []string{"information: unknown c1/eth0 10.3.0.2"}, why: "the CNI cache has it"},
		"a checkpoint that cannot be read": {make: func(w *Snapshot) {
			w.Unreadable = []Unreadable{{Unreadable: checkpoint.Unreadable{ContainerID: "c1", IfName: "eth0", Err: errors.New("torn")}}}
		}, want: []string{"error: unknown c1/eth0"}, why: "its checkpoint cannot be read: torn"},
		"a checkpoint that cannot be read, and its sandbox is gone": {make: func(w *Snapshot) {
			w.endSandbox("c1", 1)
			w.Unreadable = []Unreadable{{Unreadable: checkpoint.Unreadable{ContainerID: "c1", IfName: "eth0", Err: errors.New("torn"), Partial: checkpoint.Record{Namespace: namespace(1)}}}}
		}, want: []string{"information: checkpoint without sandbox c1/eth0 proven"}, why: "its checkpoint cannot be read: torn; " + gone + "the container runtime does not have the sandbox"},
	} {
		w := newSnapshot()
		test.make(&w)
		expect(t, name, Judge(w), test.want, test.why)
	}
}

// An attachment is counted once, whether its checkpoint can be read or not.
func TestATornCheckpointIsNotFineAsWell(t *testing.T) {
	w := newSnapshot()
	w.runPod("c1", 1, "web-0")
	w.hold("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
	w.Unreadable = []Unreadable{{Unreadable: checkpoint.Unreadable{ContainerID: "c1", IfName: "eth0", Err: errors.New("torn")}}}
	if r := Judge(w); r.Counts[Fine] != 0 || r.Counts[Unknown] != 1 {
		t.Errorf("%v", r.Counts)
	}
}

// holdUnrecorded is a holder whose namespace was not recorded.
func (w *Snapshot) holdUnrecorded(v sandbox.Verdict, why string) {
	w.hold("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
	w.network("lan").Leases[0].Holders[0].Namespace = attachment.Namespace{BootID: "boot"}
	w.Sandboxes.Judged[&w.network("lan").Leases[0].Holders[0]] = sandbox.Judgement{Verdict: v, Evidence: []string{why}}
}

// expect compares the findings that are not fine, and the evidence of the first of them.
func expect(t *testing.T, name string, r NodeReport, want []string, why string) {
	t.Helper()
	all := slices.DeleteFunc(lines(r), func(line string) bool { return strings.HasPrefix(line, "information: fine") })
	if !slices.Equal(all, want) {
		t.Errorf("%s: %q, want %q", name, all, want)
		return
	}
	if why != "" && strings.Join(r.Findings[0].Evidence, "; ") != why {
		t.Errorf("%s: the evidence is\n%q, want\n%q", name, strings.Join(r.Findings[0].Evidence, "; "), why)
	}
	errs := 0
	for _, line := range want {
		if strings.HasPrefix(line, "error") {
			errs++
		}
	}
	if r.Errors != errs || r.IsHealthy() != (errs == 0) {
		t.Errorf("%s: %d errors, well: %v", name, r.Errors, r.IsHealthy())
	}
}

func TestCounts(t *testing.T) {
	w := newSnapshot()
	w.runPod("c1", 1, "web-0")
	w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
	w.reserve("lan", "10.3.0.3", "eth0", web(1))
	w.reserve("lan", "10.3.0.4", "eth0", web(2)).ByHand = true
	w.standing(web(1), owner.Gone, "404")
	w.Problems, w.Notes = []string{"the runtime does not answer"}, []string{"a note"}
	r := Judge(w)
	if r.Counts[Fine] != 1 || r.Counts[ReservationWithoutOwner] != 1 {
		t.Errorf("%v", r.Counts)
	}
	if r.Leases != 3 || r.Reservations != 2 || r.KeptByHand != 1 || len(r.Counts) != len(Kinds) || r.IsHealthy() {
		t.Errorf("%+v", r)
	}
}

// What an ADD in between made look wrong is not told.
func TestConfirming(t *testing.T) {
	w := newSnapshot()
	w.runPod("c1", 1, "web-0")
	w.runPod("c2", 2, "web-1")
	w.attach("c1", 1, "eth0", "lan", "10.3.0.2", web(0))
	w.attach("c2", 2, "eth0", "lan", "10.3.0.3", web(1))
	good := Judge(w)
	w.network("lan").Leases = nil
	bad := Judge(w)
	if slices.ContainsFunc(good.Findings, Finding.isSuspect) || !slices.ContainsFunc(bad.Findings, Finding.isSuspect) {
		t.Errorf("%q, %q", lines(good), lines(bad))
	}
	expect(t, "at the second look only", bad.confirmedBy(good), nil, "")
	expect(t, "at both looks", bad.confirmedBy(bad), []string{"error: sandbox without lease c1/eth0 10.3.0.2", "error: sandbox without lease c2/eth0 10.3.0.3"}, "")
}
