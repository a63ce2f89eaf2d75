package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
)

// api stands for the agent. It answers by the name of the pod.
type api struct {
	answers map[string]owner.Answer
	// err is the answer to every question, fulfil the one to every Fulfil.
	err, fulfil error
	// asked are the questions, fulfilled what was written.
	asked     []owner.Question
	fulfilled []owner.Fulfilment
}

func (a *api) Ask(_ context.Context, q owner.Question) (owner.Answer, error) {
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

func (a *api) Fulfil(_ context.Context, f owner.Fulfilment) error {
	if a.fulfil == nil {
		a.fulfilled = append(a.fulfilled, f)
	}
	return a.fulfil
}

func vm(name string) owner.Answer {
	return owner.Answer{
		Owner: attachment.Owner{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "default", Name: name, UID: "uid-of-" + name}, Lasts: true, Alone: true,
	}
}

// replica returns the answer about a StatefulSet's pod.
func replica(ordinal int) owner.Answer {
	return owner.Answer{Owner: attachment.Owner{
		Group: "apps", Kind: "StatefulSet", Namespace: "default", Name: "web", UID: "uid-of-web", Ordinal: attachment.OrdinalOf(ordinal),
	}, Lasts: true, Alone: true}
}

// plain returns the answer about a pod that is its own owner.
func plain(name string) owner.Answer {
	return owner.Answer{Owner: attachment.Owner{Kind: attachment.OwnerPod, Namespace: "default", Name: name, UID: "uid-of-" + name}, Alone: true}
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
	n.owners = &api{answers: map[string]owner.Answer{
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
	n.ipam, n.owners = byOwner, &api{answers: map[string]owner.Answer{"web-0": replica(0)}}
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
			`relink-ipam: "sticky": "owner" needs the Kubernetes API: the owner of the address is not known now`},
		"sticky owner, API away": {`"sticky": "owner", ` + ranges, "", &api{err: away}, 11,
			`relink-ipam: "sticky": "owner" needs the Kubernetes API: the owner of the address is not known now: no relink-agent runs on this node: nothing listens on /x`},
		"static": {`"static": {}, ` + ranges, "", &api{err: away}, 11,
			`relink-ipam: "static" needs the Kubernetes API: the owner of the address is not known now: no relink-agent runs on this node: nothing listens on /x`},
		"claims": {ranges, `, "allowPersistentIPs": true`, &api{err: away}, 11,
			`relink-ipam: "allowPersistentIPs" needs the Kubernetes API: the owner of the address is not known now: no relink-agent runs on this node: nothing listens on /x`},
		"sticky pod":         {`"sticky": "pod", ` + ranges, "", &api{err: away}, 0, ""},
		"not sticky":         {ranges, "", nil, 0, ""},
		"a wrong annotation": {ranges, "", &api{err: wrong}, 7, `relink-ipam: the pod asks for what cannot be: annotation ipam.relink.dev/pods: "x": must be an IP address`},
	} {
		n := newNode(t, test.ipam)
		n.more, n.owners = test.more, test.owners
		_, err := n.tryAdd(t, "c1/eth0", "web-0", "")
		n.expectError(t, name, err, test.code, test.msg)
	}
	n := newNode(t, byOwner)
	_, err := n.tryAdd(t, "c1/eth0", "", "")
	n.expectError(t, "no pod", err, 4, `invalid CNI_ARGS: "": must have K8S_POD_NAMESPACE and K8S_POD_NAME: with "sticky": "owner" an address is kept for the pod`)
}

// An annotation asks for addresses, for each replica one. They are checked against the network and against who has them.
func TestStaticAddresses(t *testing.T) {
	at := func(n int) *int { return &n }
	const key = "ipam.relink.dev/pods"
	n := newNode(t, dual)
	n.owners = &api{answers: map[string]owner.Answer{
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
		"web-2":   {7, `invalid "annotation ipam.relink.dev/pods": "10.3.0.7, 10.3.0.6": must have an address of 10.3.0.1-10.3.0.9 for each replica: this is replica 3, counted from 1`},
		"mydb":    {11, `relink-ipam: requested address 10.3.0.5 is not available: it is held by eth0 of c3 on pods (VirtualMachine default/db)`},
		"outside": {7, `invalid "annotation ipam.relink.dev/pods": "10.9.0.5": is in none of the range sets, or is the second address of a set that gives one`},
		"c": {11, `relink-ipam: each of the requested addresses is not available: 10.3.0.3 is held by eth0 of c4 on pods (pod default/a); ` +
			`10.3.0.4 is held by eth0 of c5 on pods (pod default/b)`},
	} {
		_, err := n.tryAdd(t, "x/eth0", pod, "")
		n.expectError(t, pod, err, want.code, want.msg)
	}
	_, err := n.tryAdd(t, "x/eth0", "both", "10.3.0.9")
	n.expectError(t, "two ways", err, 7, `invalid "annotation ipam.relink.dev/pods": "10.3.0.8": is in none of the range sets, or is the second address of a set that gives one`)
	n.add(t, "c6/eth0", "unnoticed", "10.3.0.8 fd00:3::3")
}

// A network says whose pods may ask for an address, in whatever way. An IPAMClaim's address was given before.
func TestWhoMayAsk(t *testing.T) {
	n := newNode(t, byOwner+`, "static": {"namespaces": ["infra"]}`)
	asks := askingFor(vm("db"), "ipam.relink.dev/pods", nil, "10.3.0.5")
	claimed := vm("db")
	claimed.Claim = &owner.Claim{Name: "db.net1", UID: "u1", IPs: []netip.Prefix{netip.MustParsePrefix("10.3.0.6/24")}}
	n.owners = &api{answers: map[string]owner.Answer{"asks": asks, "modest": vm("modest"), "claims": claimed}}
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
		if _, err := n.tryAdd(t, "c1/eth0", "web-0", ""); err == nil || !strings.Contains(wire(t, err).Msg, msg) || wire(t, err).Code != 7 {
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
	a := &api{answers: map[string]owner.Answer{"db": empty, "kept": kept}}
	n.owners = a
	run := func(pod string) error {
		args := n.args("of-"+pod+"/net1", "")
		args.Args = "K8S_POD_NAMESPACE=default;K8S_POD_UID=u;K8S_POD_NAME=" + pod
		return n.confirmed(t, args)
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

// confirmed is an ADD with its confirmation.
func (n *node) confirmed(t *testing.T, args *skel.CmdArgs) error {
	t.Helper()
	c := n.begin(t, args)
	result, err := c.Add(t.Context())
	if err != nil {
		return err
	}
	return c.Confirm(t.Context(), result)
}
