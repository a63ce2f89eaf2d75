package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
)

// fakeOwners stands for the agent. It answers by the name of the pod.
type fakeOwners struct {
	answers map[string]owner.Answer
	// err is the answer to every question, fulfil the one to every Fulfil.
	err, fulfil error
	// asked are the questions, fulfilled what was written.
	asked     []owner.Question
	fulfilled []owner.Fulfilment
}

func (a *fakeOwners) Ask(_ context.Context, q owner.Question) (owner.Answer, error) {
	a.asked = append(a.asked, q)
	answer, ok := a.answers[q.Pod.Name]
	switch {
	case a.err != nil:
		return owner.Answer{}, a.err
	case !ok:
		return owner.Answer{}, fmt.Errorf("%w: no such pod", owner.ErrUnavailable)
	}
	if !q.Claims {
		answer.Claim = nil
	}
	return answer, nil
}

func (a *fakeOwners) Fulfil(_ context.Context, f owner.Fulfilment) error {
	if a.fulfil == nil {
		a.fulfilled = append(a.fulfilled, f)
	}
	return a.fulfil
}

func vm(name string) owner.Answer {
	return owner.Answer{
		Owner: attachment.Owner{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "default", Name: name, UID: "uid-of-" + name}, Persistent: true, SinglePod: true,
	}
}

// replica returns the answer about a StatefulSet's pod.
func replica(ordinal int) owner.Answer {
	return owner.Answer{Owner: attachment.Owner{
		Group: "apps", Kind: "StatefulSet", Namespace: "default", Name: "web", UID: "uid-of-web", Ordinal: attachment.OrdinalOf(ordinal),
	}, Persistent: true, SinglePod: true}
}

// plain returns the answer about a pod that is its own owner.
func plain(name string) owner.Answer {
	return owner.Answer{Owner: attachment.Owner{Kind: attachment.OwnerPod, Namespace: "default", Name: name, UID: "uid-of-" + name}, SinglePod: true}
}

// askingFor returns the answer about a pod with an annotation.
func askingFor(a owner.Answer, key string, position *int, list ...string) owner.Answer {
	a.Static = &owner.Static{Key: key, Replica: position}
	for _, text := range list {
		a.Static.Addresses = append(a.Static.Addresses, netip.MustParseAddr(text))
	}
	return a
}

const (
	byOwner = `"sticky": "owner", "ranges": [[{"subnet": "10.3.0.0/24", "rangeEnd": "10.3.0.9"}]]`
	dual    = `"sticky": "owner", "ranges": [[{"subnet": "10.3.0.0/24", "rangeEnd": "10.3.0.9"}], [{"subnet": "fd00:3::/120", "rangeEnd": "fd00:3::9"}]]`
)

// With "sticky": "owner", the owner decides what is kept. A pod that is its own owner leaves nothing behind.
func TestStickyByOwner(t *testing.T) {
	n := newNode(t, byOwner)
	n.owners = &fakeOwners{answers: map[string]owner.Answer{
		"virt-launcher-db-1": vm("db"), "virt-launcher-db-2": vm("db"), "virt-launcher-mydb-1": vm("mydb"), "web-0": replica(0), "job-x1": plain("job-x1"),
	}}
	n.add(t, "c1/eth0", "virt-launcher-db-1", "10.3.0.2")
	n.add(t, "c2/eth0", "web-0", "10.3.0.3")
	n.add(t, "c3/eth0", "job-x1", "10.3.0.4")
	for _, c := range []string{"c1/eth0", "c2/eth0", "c3/eth0"} {
		n.del(t, c)
	}
	n.expect(t, "all are gone", "10.3.0.2 reserved c1/eth0 db", "10.3.0.3 reserved c2/eth0 web", "10.3.0.4 quarantined c3/eth0 job-x1")
	n.reboot(0)
	n.add(t, "c4/eth0", "virt-launcher-mydb-1", "10.3.0.5")
	n.add(t, "c5/eth0", "virt-launcher-db-2", "10.3.0.2")
	n.add(t, "c6/eth0", "web-0", "10.3.0.3")
	n.reboot(0)
	n.expect(t, "after a reboot", "10.3.0.2 reserved c5/eth0 db", "10.3.0.3 reserved c6/eth0 web", "10.3.0.4 quarantined c3/eth0 job-x1", "10.3.0.5 reserved c4/eth0 mydb")
}

// What the pod's name has kept is found when the network begins to keep by owner, and the other way round.
func TestStickyByPodBecomesByOwner(t *testing.T) {
	n := newNode(t, strings.Replace(byOwner, "owner", "pod", 1))
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.del(t, "c1/eth0")
	n.ipam, n.owners = byOwner, &fakeOwners{answers: map[string]owner.Answer{"web-0": replica(0)}}
	n.add(t, "c2/eth0", "web-0", "10.3.0.2")
	n.del(t, "c2/eth0")
	n.expect(t, "by owner", "10.3.0.2 reserved c2/eth0 web")
	n.ipam = strings.Replace(byOwner, "owner", "pod", 1)
	n.add(t, "c3/eth0", "web-0", "10.3.0.2")
	n.del(t, "c3/eth0")
	n.expect(t, "by pod again", "10.3.0.2 reserved c3/eth0 web-0")
}

// Only what needs the API fails without it, with code 11. A wrong annotation always fails, with code 7.
func TestWithoutAnAnswer(t *testing.T) {
	away := fmt.Errorf("%w: no relink-agent runs on this node: nothing listens on /x", owner.ErrUnavailable)
	wrong := fmt.Errorf(`%w: annotation ipam.relink.dev/pods: "x": must be an IP address`, owner.ErrInvalid)
	const ranges = `"ranges": [[{"subnet": "10.3.0.0/24"}]]`
	for name, test := range map[string]struct {
		ipam, more string
		owners     owner.Asker
		code       uint
		msg        string
	}{
		"sticky owner, no agent": {`"sticky": "owner", ` + ranges, "", nil, 11,
			`relink-ipam: "sticky": "owner" needs the Kubernetes API: the owner of the address is not known now: no relink-agent runs on this node`},
		"sticky owner, API away": {`"sticky": "owner", ` + ranges, "", &fakeOwners{err: away}, 11,
			`relink-ipam: "sticky": "owner" needs the Kubernetes API: the owner of the address is not known now: no relink-agent runs on this node: nothing listens on /x`},
		"static": {`"static": {}, ` + ranges, "", &fakeOwners{err: away}, 11,
			`relink-ipam: "static" needs the Kubernetes API: the owner of the address is not known now: no relink-agent runs on this node: nothing listens on /x`},
		"claims without owners": {ranges, `, "allowPersistentIPs": true`, &fakeOwners{err: away}, 7,
			`invalid "allowPersistentIPs": "true": needs "sticky": "owner": otherwise another pod gets the address while the virtual machine is off`},
		"sticky pod":         {`"sticky": "pod", ` + ranges, "", &fakeOwners{err: away}, 0, ""},
		"not sticky":         {ranges, "", nil, 0, ""},
		"a wrong annotation": {ranges, "", &fakeOwners{err: wrong}, 7, `relink-ipam: the pod asks for what cannot be: annotation ipam.relink.dev/pods: "x": must be an IP address`},
	} {
		n := newNode(t, test.ipam)
		n.more, n.owners = test.more, test.owners
		_, err := n.tryAdd(t, "c1/eth0", "web-0", "")
		n.expectError(t, name, err, test.code, test.msg)
	}
	n := newNode(t, ranges)
	n.owners = &fakeOwners{err: away}
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	if got, want := n.stderr.String(), "relink-ipam: the pod default/web-0 gets an address without a look at its annotations: "+away.Error()+"\n"; got != want {
		t.Errorf("stderr says %q, want %q", got, want)
	}
	n = newNode(t, byOwner)
	_, err := n.tryAdd(t, "c1/eth0", "", "")
	n.expectError(t, "no pod", err, 4, `invalid CNI_ARGS: "": must have K8S_POD_NAMESPACE and K8S_POD_NAME: with "sticky": "owner" an address is kept for the pod`)
}

// An annotation asks for addresses, for each replica one. They are checked against the network and against who has them.
func TestStaticAddresses(t *testing.T) {
	at := func(n int) *int { return &n }
	const key = "ipam.relink.dev/pods"
	n := newNode(t, dual)
	n.owners = &fakeOwners{answers: map[string]owner.Answer{
		"web-0":     askingFor(replica(0), key, at(0), "10.3.0.7", "10.3.0.6", "fd00:3::6", "fd00:3::7"),
		"web-1":     askingFor(replica(1), key, at(1), "10.3.0.7", "10.3.0.6", "fd00:3::6", "fd00:3::7"),
		"web-2":     askingFor(replica(2), key, at(2), "10.3.0.7", "10.3.0.6"),
		"db":        askingFor(vm("db"), key+".eth0", nil, "10.3.0.5"),
		"mydb":      askingFor(vm("mydb"), key+".eth0", nil, "10.3.0.5"),
		"outside":   askingFor(vm("outside"), key, nil, "10.9.0.5"),
		"gateway":   askingFor(vm("gateway"), key, nil, "10.3.0.1"),
		"both":      askingFor(vm("both"), key, nil, "10.3.0.8"),
		"a":         askingFor(plain("a"), key, nil, "10.3.0.3", "10.3.0.4"),
		"b":         askingFor(plain("b"), key, nil, "10.3.0.3", "10.3.0.4"),
		"c":         askingFor(plain("c"), key, nil, "10.3.0.3", "10.3.0.4"),
		"unnoticed": plain("unnoticed"),
	}}
	n.add(t, "c1/eth0", "web-1", "10.3.0.6 fd00:3::7")
	n.add(t, "c2/eth0", "web-0", "10.3.0.7 fd00:3::6")
	n.add(t, "c3/eth0", "db", "10.3.0.5 fd00:3::8")
	n.add(t, "c4/eth0", "a", "10.3.0.3 fd00:3::9")
	n.add(t, "c5/eth0", "b", "10.3.0.4 fd00:3::2")
	for pod, want := range map[string]struct {
		code uint
		msg  string
	}{
		"web-2":   {7, `invalid "annotation ipam.relink.dev/pods": "10.3.0.6": is the last address of 10.3.0.1-10.3.0.9 in the list, which must have one for each replica: this is replica 3, counted from 1`},
		"mydb":    {11, `relink-ipam: each of the requested addresses is not available: 10.3.0.5 is held by eth0 of c3 on pods (VirtualMachine default/db)`},
		"outside": {7, `invalid "annotation ipam.relink.dev/pods": "10.9.0.5": is in none of the range sets`},
		"c": {11, `relink-ipam: each of the requested addresses is not available: 10.3.0.3 is held by eth0 of c4 on pods (pod default/a); ` +
			`10.3.0.4 is held by eth0 of c5 on pods (pod default/b)`},
	} {
		_, err := n.tryAdd(t, "x/eth0", pod, "")
		n.expectError(t, pod, err, want.code, want.msg)
	}
	_, err := n.tryAdd(t, "x/eth0", "both", "10.3.0.9")
	n.expectError(t, "two ways", err, 7, `invalid "annotation ipam.relink.dev/pods": "10.3.0.8": is the second address of a range set that gives one, after 10.3.0.9`)
	n.add(t, "c6/eth0", "unnoticed", "10.3.0.8 fd00:3::3")
}

// Several pods of an owner that a user has named run at the same time. No two of them have one address, whatever the network
// keeps.
func TestPodsOfANamedOwner(t *testing.T) {
	named := owner.Answer{Owner: attachment.Owner{Group: "apps", Kind: "Deployment", Namespace: "default", Name: "web", UID: "u1"}, Persistent: true}
	for _, keeps := range []string{"none", "pod", "owner"} {
		n := newNode(t, fmt.Sprintf(`"sticky": %q, "ranges": [[{"subnet": "10.3.0.0/24", "rangeEnd": "10.3.0.9"}]]`, keeps))
		one, two := askingFor(named, "ipam.relink.dev/pods", nil, "10.3.0.5"), askingFor(named, "ipam.relink.dev/pods", nil, "10.3.0.6", "10.3.0.7")
		n.owners = &fakeOwners{answers: map[string]owner.Answer{"a": one, "b": one, "c": two, "d": two, "e": two}}
		n.add(t, "c1/eth0", "a", "10.3.0.5")
		_, err := n.tryAdd(t, "c2/eth0", "b", "")
		if got := parseError(t, err); got.Code != 11 || !strings.Contains(got.Msg, "not available: 10.3.0.5 is held by eth0 of c1 on pods") {
			t.Errorf("%s: %+v", keeps, got)
		}
		n.add(t, "c3/eth0", "c", "10.3.0.6")
		n.add(t, "c4/eth0", "d", "10.3.0.7")
		_, err = n.tryAdd(t, "c5/eth0", "e", "")
		if got := parseError(t, err); got.Code != 11 || !strings.Contains(got.Msg, "each of the requested addresses is not available") {
			t.Errorf("%s: %+v", keeps, got)
		}
	}
}

// A pod of a named owner is made again under its name: it has one address, always the same, in whatever order the ADD and the DEL
// of the sandbox before come. Nothing of the owner's other pods is taken.
func TestAPodOfANamedOwnerIsMadeAgain(t *testing.T) {
	named := owner.Answer{Owner: attachment.Owner{Group: "example.org", Kind: "Cluster", Namespace: "default", Name: "pg", UID: "u1"}, Persistent: true}
	for _, keeps := range []string{"pod", "owner"} {
		of := map[string]string{"pod": " pg-0", "owner": " pg"}[keeps]
		n := newNode(t, strings.Replace(byOwner, "owner", keeps, 1))
		n.owners = &fakeOwners{answers: map[string]owner.Answer{"pg-0": named, "pg-1": named}}
		add := func(sandbox, pod, want string) {
			t.Helper()
			args := n.args(sandbox, pod)
			args.Args += ";K8S_POD_UID=uid-of-" + sandbox
			g, err := n.begin(t, args).Add(t.Context())
			if err != nil || g.Result.IPs[0].Address.IP.String() != want {
				t.Errorf("sticky %s: ADD of %s for %s: %v, %v, want %s", keeps, sandbox, pod, g, err, want)
			}
			n.later(time.Second)
		}
		add("other/eth0", "pg-1", "10.3.0.2")
		n.del(t, "other/eth0")
		n.later(time.Second)
		add("other2/eth0", "pg-1", "10.3.0.2")
		add("c0/eth0", "pg-0", "10.3.0.3")
		for i := range 3 { // ADD before DEL.
			add(fmt.Sprintf("c%d/eth0", i+1), "pg-0", "10.3.0.3")
			n.del(t, fmt.Sprintf("c%d/eth0", i))
			n.later(time.Second)
		}
		for i := range 3 { // DEL before ADD.
			n.del(t, fmt.Sprintf("c%d/eth0", i+3))
			n.later(time.Second)
			n.del(t, "other2/eth0") // The other pod's address waits, too.
			add(fmt.Sprintf("c%d/eth0", i+4), "pg-0", "10.3.0.3")
		}
		n.del(t, "c6/eth0")
		n.later(time.Hour)
		n.expect(t, keeps, "10.3.0.2 reserved other2/eth0"+strings.Replace(of, "0", "1", 1), "10.3.0.3 reserved c6/eth0"+of)
	}
}

// A pod of a named owner asks for another address, while its sandbox before is there. By its name it keeps one of the two.
func TestAPodOfANamedOwnerKeepsOneAddressByItsName(t *testing.T) {
	n := newNode(t, strings.Replace(byOwner, "owner", "pod", 1))
	named := owner.Answer{Owner: attachment.Owner{Group: "example.org", Kind: "Cluster", Namespace: "default", Name: "pg", UID: "u1"}, Persistent: true}
	a := &fakeOwners{answers: map[string]owner.Answer{"pg-0": named, "pg-1": named}}
	n.owners = a
	n.add(t, "other/eth0", "pg-1", "10.3.0.2")
	n.del(t, "other/eth0")
	n.add(t, "c1/eth0", "pg-0", "10.3.0.3")
	a.answers["pg-0"] = askingFor(named, "ipam.relink.dev/pods", nil, "10.3.0.5")
	n.add(t, "c2/eth0", "pg-0", "10.3.0.5")
	n.del(t, "c1/eth0")
	n.expect(t, "the sandbox before has gone", "10.3.0.2 reserved other/eth0 pg-1", "10.3.0.3 quarantined c1/eth0 pg-0", "10.3.0.5 held c2/eth0 pg-0")
	n.del(t, "c2/eth0")
	a.answers["pg-0"] = askingFor(named, "ipam.relink.dev/pods", nil, "10.3.0.6")
	n.add(t, "c3/eth0", "pg-0", "10.3.0.6")
	n.later(time.Hour)
	n.expect(t, "it has asked for a third one", "10.3.0.2 reserved other/eth0 pg-1", "10.3.0.6 held c3/eth0 pg-0")
}

// One pod after the other of a named owner asks for another address. No more addresses wait than the owner had pods at once.
func TestANamedOwnerKeepsNoMoreThanItHadPods(t *testing.T) {
	n := newNode(t, byOwner)
	named := owner.Answer{Owner: attachment.Owner{Group: "apps", Kind: "Deployment", Namespace: "default", Name: "web", UID: "u1"}, Persistent: true}
	a := &fakeOwners{answers: map[string]owner.Answer{}}
	n.owners = a
	for i := 2; i < 9; i++ {
		pod, address := fmt.Sprint("pod-", i), fmt.Sprint("10.3.0.", i)
		a.answers[pod] = askingFor(named, "ipam.relink.dev/pods", nil, address)
		n.add(t, pod+"/eth0", pod, address)
		n.del(t, pod+"/eth0")
		n.later(2 * time.Minute)
	}
	n.expect(t, "one pod at a time", "10.3.0.8 reserved pod-8/eth0 web")
}

// The StatefulSet was made anew, and has adopted the pod that runs. The pod's next sandbox has its address.
func TestThePodThatHadTheAddressGetsIt(t *testing.T) {
	n := newNode(t, byOwner)
	at := 0
	a := &fakeOwners{answers: map[string]owner.Answer{"web-0": askingFor(replica(0), "ipam.relink.dev/pods", &at, "10.3.0.5")}}
	n.owners = a
	add := func(sandbox, uid string) error {
		args := n.args(sandbox, "")
		args.Args = "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_UID=" + uid
		_, err := n.begin(t, args).Add(t.Context())
		return err
	}
	if err := add("c1/eth0", "pod-1"); err != nil {
		t.Fatal(err)
	}
	anew := a.answers["web-0"]
	anew.Owner.UID = "another"
	a.answers["web-0"] = anew
	if err := add("c2/eth0", "pod-1"); err != nil {
		t.Errorf("the same pod: %v", err)
	}
	n.expectError(t, "another pod", add("c3/eth0", "pod-2"), 0, "") // Its owner has the address by now.
	anew.Owner.UID = "a third one"
	a.answers["web-0"] = anew
	n.expectError(t, "of a third set", add("c4/eth0", "pod-3"), 11,
		"relink-ipam: each of the requested addresses is not available: 10.3.0.5 is held by eth0 of c1 on pods and eth0 of c2 on pods and eth0 of c3 on pods (StatefulSet default/web, ordinal 0)"+
			": the StatefulSet of that name before this one (it had UID another, this one has a third one). It can be had when no sandbox holds it, "+
			"and relink gc or relink-agent has twice, 10 minutes apart, seen in the Kubernetes API that this owner is gone, or after relink ipam release")
}

// A program of its own cannot probe before it writes a claim.
func TestAClaimAndAProbeInAProgramOfItsOwn(t *testing.T) {
	n := newNode(t, byOwner+`, "conflictDetection": true`)
	n.more = `, "allowPersistentIPs": true`
	_, _, err := Add(t.Context(), n.args("c1/eth0", "web-0"), &fakeOwners{answers: map[string]owner.Answer{"web-0": replica(0)}})
	n.expectError(t, "both", err, 7,
		`invalid "ipam.conflictDetection": true: works with "allowPersistentIPs" only inside of relink-macvlan and relink-vlan: do not set RELINK_IPAM_EXEC`)
}

// A network says whose pods may ask for an address, in whatever way. An IPAMClaim's address was given before.
func TestWhoMayAsk(t *testing.T) {
	n := newNode(t, byOwner+`, "static": {"namespaces": ["infra"]}`)
	asks := askingFor(vm("db"), "ipam.relink.dev/pods", nil, "10.3.0.5")
	claimed := vm("db")
	claimed.Claim = &owner.Claim{Name: "db.net1", UID: "u1", IPs: []netip.Prefix{netip.MustParsePrefix("10.3.0.6/24")}}
	n.owners = &fakeOwners{answers: map[string]owner.Answer{"asks": asks, "modest": vm("modest"), "claims": claimed}}
	const refusal = `cannot be given: pods of the namespace "default" may not ask for an address of this network ("ipam.static.namespaces")`
	_, err := n.tryAdd(t, "c1/eth0", "asks", "")
	n.expectError(t, "annotation", err, 7, `invalid "annotation ipam.relink.dev/pods": "10.3.0.5": `+refusal)
	_, err = n.tryAdd(t, "c1/eth0", "modest", "10.3.0.5")
	n.expectError(t, "CNI_ARGS", err, 4, `invalid CNI_ARGS: "IP=10.3.0.5": `+refusal)
	n.add(t, "c1/eth0", "modest", "10.3.0.2")
	n.more = `, "allowPersistentIPs": true`
	n.add(t, "c2/eth0", "claims", "10.3.0.6")
	for text, msg := range map[string]string{
		`{"namespaces": ["Infra"]}`: `invalid "ipam.static.namespaces[0]": "Infra": must be the name of a namespace`,
		`{"namespace": ["infra"]}`:  `invalid configuration key "ipam.static.namespace": no such key of relink-ipam; did you mean "namespaces"?`,
		`[]`:                        `invalid "ipam.static"`,
	} {
		n := newNode(t, byOwner+`, "static": `+text)
		if _, err := n.tryAdd(t, "c1/eth0", "web-0", ""); err == nil || !strings.Contains(parseError(t, err).Msg, msg) || parseError(t, err).Code != 7 {
			t.Errorf("%s: %v, want %s", text, err, msg)
		}
	}
}

// The claim's addresses are honoured. A claim without any gets those that the pod was given, once all else has succeeded.
func TestIPAMClaims(t *testing.T) {
	n := newNode(t, byOwner)
	n.more = `, "allowPersistentIPs": true`
	empty, kept := vm("db"), vm("kept")
	empty.Claim = &owner.Claim{Name: "db.net1", UID: "u1"}
	kept.Claim = &owner.Claim{Name: "kept.net1", UID: "u2", IPs: []netip.Prefix{netip.MustParsePrefix("10.3.0.8/24")}}
	a := &fakeOwners{answers: map[string]owner.Answer{"db": empty, "kept": kept}}
	n.owners = a
	run := func(pod string) error {
		args := n.args("of-"+pod+"/net1", "")
		args.Args = "K8S_POD_NAMESPACE=default;K8S_POD_UID=u;K8S_POD_NAME=" + pod
		return n.committed(t, args)
	}
	if err := run("kept"); err != nil {
		t.Fatal(err)
	}
	if len(a.fulfilled) > 0 || !a.asked[0].Claims {
		t.Errorf("asked %+v, fulfilled %+v", a.asked, a.fulfilled)
	}
	if err := run("db"); err != nil {
		t.Fatal(err)
	}
	want := owner.Fulfilment{
		Pod: attachment.Pod{Namespace: "default", Name: "db", UID: "u"}, Claim: owner.Claim{Name: "db.net1", UID: "u1"},
		IPs: []netip.Prefix{netip.MustParsePrefix("10.3.0.9/24")},
	}
	if diff := cmp.Diff([]owner.Fulfilment{want}, a.fulfilled, cmp.Comparer(func(x, y netip.Prefix) bool { return x == y })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	n.del(t, "of-db/net1")
	a.fulfil = fmt.Errorf("%w: 10.3.0.9/24", owner.ErrDiffers)
	n.expectError(t, "another has written", run("db"), 11, "relink-ipam: IPAMClaim default/db.net1: the IPAMClaim has other addresses: 10.3.0.9/24")
}

// One address that a pod asks for in several ways is one address. Two addresses of one range set are an error that names
// the two that ask.
func TestOneAddressAskedForInSeveralWays(t *testing.T) {
	n := newNode(t, byOwner)
	const key = "ipam.relink.dev/pods"
	claimed := func(a owner.Answer, text string) owner.Answer {
		a.Claim = &owner.Claim{Name: a.Owner.Name + ".net1", UID: "u", IPs: []netip.Prefix{netip.MustParsePrefix(text)}}
		return a
	}
	n.owners = &fakeOwners{answers: map[string]owner.Answer{
		"one": claimed(askingFor(vm("one"), key, nil, "10.3.0.5"), "10.3.0.5/24"), "list": claimed(askingFor(vm("list"), key, nil, "10.3.0.7", "10.3.0.6"), "10.3.0.6/24"),
		"multus": askingFor(replica(0), key, nil, "10.3.0.8"), "differs": claimed(askingFor(vm("differs"), key, nil, "10.3.0.3"), "10.3.0.4/24"),
		"other list": claimed(askingFor(vm("other"), key, nil, "10.3.0.2", "10.3.0.3"), "10.3.0.4/24"),
	}}
	n.more = `, "allowPersistentIPs": true`
	for i, c := range []string{"c1/eth0", "c2/eth0"} { // The machine's first start and its second one.
		n.add(t, c, "one", "10.3.0.5")
		n.add(t, fmt.Sprintf("l%d/eth0", i), "list", "10.3.0.6")
	}
	n.more = `, "runtimeConfig": {"ips": ["10.3.0.8/24"]}, "args": {"cni": {"ips": ["10.3.0.8"]}}`
	if got, err := n.tryAdd(t, "c3/eth0", "multus", "10.3.0.8/24"); err != nil || got != "10.3.0.8" {
		t.Errorf("%s, %v", got, err)
	}
	n.more = `, "allowPersistentIPs": true`
	const second = `: is the second address of a range set that gives one, after 10.3.0.4`
	_, err := n.tryAdd(t, "c4/eth0", "differs", "")
	n.expectError(t, "two addresses", err, 7, `invalid "annotation ipam.relink.dev/pods": "10.3.0.3"`+second)
	_, err = n.tryAdd(t, "c4/eth0", "other list", "")
	n.expectError(t, "an address beside a list", err, 7, `invalid "annotation ipam.relink.dev/pods": "10.3.0.2"`+second)
}

// committed is an ADD with its commit.
func (n *node) committed(t *testing.T, args *skel.CmdArgs) error {
	t.Helper()
	g, err := n.begin(t, args).Add(t.Context())
	if err != nil {
		return err
	}
	return g.Commit(t.Context())
}
