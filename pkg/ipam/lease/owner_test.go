package lease

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// vm returns the owner of a launcher pod.
func vm(name string) attachment.Owner {
	return attachment.Owner{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "default", Name: name, UID: "uid-of-" + name}
}

// ofOwner returns the request of a pod whose owner the API has told.
func (n *node) ofOwner(sandbox, podName string, owner attachment.Owner, change ...func(*Request)) Request {
	r := n.request(sandbox, podName)
	r.Owner, r.APIOwner, r.AlternateOwner, r.Policy.ByOwner = owner, owner, pod(podName), true
	for _, c := range change {
		c(&r)
	}
	return r
}

func requesting(texts ...string) func(*Request) {
	return func(r *Request) {
		for _, a := range texts {
			r.RequestedAddresses = append(r.RequestedAddresses, addr(a))
		}
	}
}

func choosingFrom(texts ...string) func(*Request) {
	return func(r *Request) {
		for _, a := range texts {
			r.CandidateAddresses = append(r.CandidateAddresses, addr(a))
		}
	}
}

func shared(r *Request) { r.Policy.Shared = true }

// gives expects an ADD to give the address, or to be refused with the message.
func (n *node) gives(t *testing.T, r Request, want string) Lease {
	t.Helper()
	given, err := n.store(t).Allocate(t.Context(), r)
	if a, parseErr := netip.ParseAddr(want); parseErr == nil {
		must(t, err)
		if given[0].Address != a {
			t.Fatalf("%s is given %s, want %s", r.Attachment, given[0].Address, a)
		}
		n.expectVerified(t)
		return given[0]
	}
	if err == nil || err.Error() != want {
		t.Fatalf("%s: %v %v, want the error %s", r.Attachment, given, err, want)
	}
	return Lease{}
}

// A launcher's name is new at each start. Its VM keeps the address. Another VM does not get it, however alike the names
// are, and neither does a pod of the VM's name.
func TestAnOwnerKeepsItsAddressWhateverThePodIsCalled(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.gives(t, n.ofOwner("c1/net1", "virt-launcher-db-x7k2p", vm("db")), "10.3.0.2")
	n.gives(t, n.ofOwner("c2/net1", "virt-launcher-mydb-aaaaa", vm("mydb")), "10.3.0.3")
	n.gives(t, n.ofOwner("c3/net1", "virt-launcher-a.b-bbbbb", vm("a.b")), "10.3.0.4")
	n.add(t, "c4/net1", "db", "10.3.0.5")
	n.del(t, "c1/net1")
	n.gives(t, n.ofOwner("c5/net1", "virt-launcher-a.c-ccccc", vm("a.c")), "10.3.0.6")
	n.gives(t, n.ofOwner("c6/net1", "virt-launcher-db-q9z4m", vm("db")), "10.3.0.2")
	n.gives(t, n.ofOwner("c7/net1", "virt-launcher-db-00000", vm("db")), "10.3.0.2") // The launcher before is not gone yet.
	recreated := vm("db")
	recreated.UID = "another"
	n.gives(t, n.ofOwner("c8/net1", "virt-launcher-db-11111", recreated), "10.3.0.7")
	elsewhere := vm("db")
	elsewhere.Namespace = "shop"
	n.gives(t, n.ofOwner("c9/net1", "virt-launcher-db-11111", elsewhere), "10.3.0.8")
}

// The pods of a StatefulSet are told apart by their ordinals.
func TestEachOrdinalHasItsAddress(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.gives(t, n.ofOwner("c1/eth0", "web-0", set("web", 0)), "10.3.0.2")
	n.gives(t, n.ofOwner("c2/eth0", "web-1", set("web", 1)), "10.3.0.3")
	n.del(t, "c1/eth0")
	n.del(t, "c2/eth0")
	n.gives(t, n.ofOwner("c3/eth0", "web-1", set("web", 1)), "10.3.0.3")
	n.gives(t, n.ofOwner("c4/eth0", "web-0", set("web", 0)), "10.3.0.2")
	n.gives(t, n.ofOwner("c5/eth0", "web-10", set("web", 10)), "10.3.0.4")
}

// What was kept for a pod by its name is found under its owner, and then it is the owner's.
func TestWhatWasKeptByThePodsNameIsTheOwners(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.add(t, "c2/eth0", "web-1", "10.3.0.3")
	n.del(t, "c1/eth0")
	n.reserve(t, "10.3.0.7", "web-2", 0)
	n.reserve(t, "10.3.0.8", "web-0", time.Hour)
	n.gives(t, n.ofOwner("c3/eth0", "web-1", set("web", 1)), "10.3.0.3") // Its sandbox before is there.
	l := n.gives(t, n.ofOwner("c4/eth0", "web-2", set("web", 2)), "10.3.0.7")
	if l.Owner != pod("web-2") || !l.ByHand || l.Newest().Owner != set("web", 2) {
		t.Errorf("what an operator reserved for the pod is now %+v", l)
	}
	n.gives(t, n.ofOwner("c5/eth0", "web-0", set("web", 0)), "10.3.0.8")
	n.expect(t, "then", "10.3.0.2 quarantined c1/eth0 web-0", "10.3.0.3 held c2/eth0+c3/eth0 web", "10.3.0.7 held c4/eth0 web-2", "10.3.0.8 held c5/eth0 web-0")
	n.del(t, "c5/eth0")
	n.later(2 * time.Hour) // The operator's reservation is over. The policy keeps the address.
	l = n.gives(t, n.ofOwner("c6/eth0", "web-0", set("web", 0)), "10.3.0.8")
	if l.Owner != set("web", 0) || l.ByHand && l.ReservedByHandAt(n.day) {
		t.Errorf("it is now %+v", l)
	}
}

// Several pods can name one owner. No two of them have one address, and the addresses wait for the next pods.
func TestPodsOfASharedOwnerHaveTheirOwnAddresses(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	ours := attachment.Owner{Group: "example.org", Kind: "Cluster", Namespace: "default", Name: "ours", UID: "uid-1"}
	n.gives(t, n.ofOwner("c1/eth0", "a", ours, shared), "10.3.0.2")
	n.gives(t, n.ofOwner("c2/eth0", "b", ours, shared), "10.3.0.3")
	n.gives(t, n.ofOwner("c3/eth0", "a", ours, shared), "10.3.0.2") // The next sandbox of the same pod.
	n.gives(t, n.ofOwner("c4/eth0", "c", ours), "10.3.0.4")         // Its holders are shared.
	n.del(t, "c1/eth0")
	n.del(t, "c3/eth0")
	n.later(time.Second)
	n.del(t, "c2/eth0")
	n.expect(t, "two wait", "10.3.0.2 reserved c3/eth0 ours", "10.3.0.3 reserved c2/eth0 ours", "10.3.0.4 held c4/eth0 ours")
	n.gives(t, n.ofOwner("c5/eth0", "d", ours, shared, requesting("10.3.0.4")),
		"each of the requested addresses is not available: 10.3.0.4 is held by eth0 of c4 on pods (Cluster default/ours)")
	n.gives(t, n.ofOwner("c6/eth0", "d", ours, shared), "10.3.0.3")
	n.gives(t, n.ofOwner("c7/eth0", "e", ours, shared), "10.3.0.2")
}

// A sandbox that is another pod's by now does not bring its address to that pod while the first pod has it, too.
func TestASandboxOfAnotherPod(t *testing.T) {
	ours := attachment.Owner{Group: "example.org", Kind: "Cluster", Namespace: "default", Name: "ours", UID: "uid-1"}
	for name, change := range map[string]func(*Request){
		"by the UIDs of pods": func(*Request) {}, "by their names": func(r *Request) { r.Pod.UID = "" },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.9", sticky)
			n.gives(t, n.ofOwner("c1/eth0", "a", ours, shared, change), "10.3.0.2")
			n.gives(t, n.ofOwner("c2/eth0", "a", ours, shared, change), "10.3.0.2")
			n.gives(t, n.ofOwner("c2/eth0", "b", ours, shared, change), "10.3.0.2 is not available to pod default/b: it is held by eth0 of c1 on pods and "+
				"eth0 of c2 on pods (Cluster default/ours); DEL eth0 of c2 on pods first")
			n.del(t, "c1/eth0")
			n.gives(t, n.ofOwner("c2/eth0", "b", ours, shared, change), "10.3.0.2")
		})
	}
}

// Whoever asks for an address gets it if nobody else has it. Its owner's next pod may come while the one before is there,
// even on a network that keeps no address.
func TestAnAddressThatIsAskedFor(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	byName := func(r *Request) {
		r.Owner, r.AlternateOwner, r.Policy.ByOwner = r.AlternateOwner, attachment.Owner{}, false
	}
	n.gives(t, n.ofOwner("c1/net1", "virt-launcher-db-1", vm("db"), byName, requesting("10.3.0.5")), "10.3.0.5")
	n.gives(t, n.ofOwner("c2/net1", "virt-launcher-db-2", vm("db"), byName, requesting("10.3.0.5")), "10.3.0.5")
	n.gives(t, n.ofOwner("c3/net1", "virt-launcher-mydb-1", vm("mydb"), byName, requesting("10.3.0.5")),
		"each of the requested addresses is not available: 10.3.0.5 is held by net1 of c1 on pods and net1 of c2 on pods (pod default/virt-launcher-db-2)")
	n.policy = sticky
	n.gives(t, n.ofOwner("c4/net1", "virt-launcher-x-1", vm("x"), requesting("10.3.0.6")), "10.3.0.6")
	n.del(t, "c4/net1")
	n.gives(t, n.ofOwner("c5/net1", "virt-launcher-y-1", vm("y"), requesting("10.3.0.6")),
		"each of the requested addresses is not available: 10.3.0.6 is reserved for VirtualMachine default/x")
	// Another address is asked for: the one before waits for nobody any more.
	n.gives(t, n.ofOwner("c6/net1", "virt-launcher-x-2", vm("x"), requesting("10.3.0.8")), "10.3.0.8")
	n.gives(t, n.ofOwner("c5/net1", "virt-launcher-y-1", vm("y"), requesting("10.3.0.6")), "10.3.0.6")
}

// Of a list, a pod gets the address that is its owner's already, else the first one that nobody has.
func TestOneAddressOfAList(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	list := choosingFrom("10.3.0.7", "10.3.0.6", "10.3.0.5")
	n.gives(t, n.ofOwner("c1/eth0", "a", vm("a"), list), "10.3.0.7")
	n.gives(t, n.ofOwner("c1/eth0", "a", vm("a"), list), "10.3.0.7") // Asked again.
	n.gives(t, n.ofOwner("c2/eth0", "b", vm("b"), list), "10.3.0.6")
	n.del(t, "c1/eth0")
	n.gives(t, n.ofOwner("c3/eth0", "c", vm("c"), list), "10.3.0.5")
	n.gives(t, n.ofOwner("c4/eth0", "b", vm("b"), list), "10.3.0.6")
	n.gives(t, n.ofOwner("c5/eth0", "d", vm("d"), list), "each of the requested addresses is not available: 10.3.0.7 is reserved for "+
		"VirtualMachine default/a; 10.3.0.6 is held by eth0 of c2 on pods and eth0 of c4 on pods (VirtualMachine default/b); "+
		"10.3.0.5 is held by eth0 of c3 on pods (VirtualMachine default/c)")
	n.gives(t, n.ofOwner("c6/eth0", "a", vm("a"), list), "10.3.0.7")
	n.gives(t, n.ofOwner("c6/eth0", "a", vm("a"), choosingFrom("10.3.0.4")), "10.3.0.4 cannot be given: eth0 of c6 on pods holds 10.3.0.7 already; DEL it first")
	n.sets[0][0].Excluded = []Span{span("10.3.0.3", "10.3.0.3")}
	for text, why := range map[string]string{
		"10.3.0.3": "cannot be given: it is in exclude 10.3.0.3", "10.9.0.1": "is in none of the range sets",
	} {
		_, err := n.store(t).Allocate(t.Context(), n.ofOwner("c7/eth0", "e", vm("e"), choosingFrom("10.3.0.4", text)))
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Error() != text+" "+why {
			t.Errorf("%s: %v, want %s", text, err, why)
		}
	}
	n.policy, n.sets[0][0].Excluded = minute, nil
	n.gives(t, n.ofOwner("c8/eth0", "f", vm("f"), choosingFrom("10.3.0.4", "10.3.0.3")), "10.3.0.4")
	n.del(t, "c8/eth0")
	n.gives(t, n.ofOwner("c9/eth0", "g", vm("g"), choosingFrom("10.3.0.4", "10.3.0.3")), "10.3.0.3") // The other one rests.
}

// What an operator has reserved is for the pod that the operator has named. When the operator's time is over while the pod
// runs, the address is its owner's.
func TestWhatAnOperatorHasReserved(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	ours := attachment.Owner{Group: "example.org", Kind: "Cluster", Namespace: "default", Name: "ours", UID: "uid-1"}
	n.reserve(t, "10.3.0.5", "a", time.Hour)
	n.gives(t, n.ofOwner("c1/eth0", "a", ours, shared), "10.3.0.5")
	n.gives(t, n.ofOwner("c2/eth0", "b", ours, shared, requesting("10.3.0.5")),
		"each of the requested addresses is not available: 10.3.0.5 is held by eth0 of c1 on pods (pod default/a)")
	n.del(t, "c1/eth0")
	n.gives(t, n.ofOwner("c2/eth0", "b", ours, shared, requesting("10.3.0.5")), "each of the requested addresses is not available: 10.3.0.5 is reserved for pod default/a")
	n.gives(t, n.ofOwner("c3/eth0", "a", ours, shared), "10.3.0.5")
	n.later(2 * time.Hour)
	n.del(t, "c3/eth0")
	n.expect(t, "the operator's time is over", "10.3.0.5 reserved c3/eth0 ours")
}

// Each interface gets its own address of a list back.
func TestEachInterfaceGetsItsAddressOfAListBack(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	list := choosingFrom("10.3.0.7", "10.3.0.6")
	n.gives(t, n.ofOwner("c1/net1", "a", vm("a"), list), "10.3.0.7")
	n.gives(t, n.ofOwner("c1/net2", "a", vm("a"), list), "10.3.0.6")
	n.del(t, "c1/net1")
	n.del(t, "c1/net2")
	n.gives(t, n.ofOwner("c2/net2", "a", vm("a"), list), "10.3.0.6")
	n.gives(t, n.ofOwner("c2/net1", "a", vm("a"), list), "10.3.0.7")
}

// A network that does not keep by owner lets the addresses of a shared owner wait: other pods of it will come.
func TestOnePodOfASharedOwnerLetsTheOthersAddressesWait(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	ours := attachment.Owner{Group: "example.org", Kind: "Cluster", Namespace: "default", Name: "ours", UID: "uid-1"}
	for i, name := range []string{"a", "b", "c"} {
		n.gives(t, n.ofOwner("c"+name+"/eth0", name, ours, shared), []string{"10.3.0.2", "10.3.0.3", "10.3.0.4"}[i])
	}
	for _, name := range []string{"a", "b", "c"} {
		n.del(t, "c"+name+"/eth0")
		n.later(time.Second)
	}
	byName := func(r *Request) {
		r.Owner, r.AlternateOwner, r.Policy.ByOwner = pod("a"), ours, false
	}
	n.gives(t, n.ofOwner("d/eth0", "a", ours, shared, byName), "10.3.0.2")
	n.expect(t, "two wait", "10.3.0.2 held d/eth0 a", "10.3.0.3 reserved cb/eth0 ours", "10.3.0.4 reserved cc/eth0 ours")
}

// A virtual machine that was made anew has the name of the one before. A refusal tells the two apart, and says when the address
// can be had.
func TestTheOwnerOfThatNameBefore(t *testing.T) {
	n := newNode(t, "10.3.0.9", Policy{Sticky: true})
	before, anew := vm("db"), vm("db")
	anew.UID = "made-anew"
	n.gives(t, n.ofOwner("c1/eth0", "launcher-1", before), "10.3.0.2")
	const both = ": the VirtualMachine of that name before this one (it had UID uid-of-db, this one has made-anew). It can be had when no sandbox holds it, and " +
		"relink gc or relink-agent has twice, 10 minutes apart, seen in the Kubernetes API that this owner is gone, or after relink ipam release"
	const asked = "each of the requested addresses is not available: 10.3.0.2 is "
	n.gives(t, n.ofOwner("c2/eth0", "launcher-2", anew, requesting("10.3.0.2")), asked+"held by eth0 of c1 on pods (VirtualMachine default/db)"+both)
	n.del(t, "c1/eth0")
	n.gives(t, n.ofOwner("c2/eth0", "launcher-2", anew, requesting("10.3.0.2")), asked+"reserved for VirtualMachine default/db"+both)
	reserved := "10.3.0.2 is not available: it is reserved for VirtualMachine default/db" + both
	if _, err := n.store(t).Reserve(t.Context(), addr("10.3.0.2"), anew, 0); err == nil || err.Error() != reserved {
		t.Errorf("by hand: %v, want %s", err, reserved)
	}
	_, err := n.store(t).Reserve(t.Context(), addr("10.3.0.2"), before, 0)
	must(t, err)
	n.gives(t, n.ofOwner("c2/eth0", "launcher-2", anew, requesting("10.3.0.2")), asked+"reserved for VirtualMachine default/db"+both)
	n.gives(t, n.ofOwner("c2/eth0", "launcher-2", vm("web"), requesting("10.3.0.2")), "each of the requested addresses is not available: 10.3.0.2 is reserved for VirtualMachine default/db")
	n.gives(t, n.ofOwner("c2/eth0", "launcher-2", anew), "10.3.0.3")
}
