package ipam

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
)

// fakeJudge stands for an agent that can be asked about owners, too. It judges by the ordinal. Those that it does not know live, and
// their pods do not exist.
type fakeJudge struct {
	fakeOwners
	judged map[int]owner.Judgement
	// then is called after each answer.
	then func()
	// questions counts the requests.
	questions int
}

func (j *fakeJudge) Judge(_ context.Context, owners []attachment.Owner) (all []owner.Judgement) {
	j.questions++
	for _, o := range owners {
		number, _ := o.Ordinal.Number()
		one, known := j.judged[number]
		if !known {
			one = owner.Judgement{Standing: owner.Exists, PodLocation: "its pod does not exist"}
		}
		one.Owner = o
		if one.NoCluster == "" {
			one.Cluster = "this cluster"
		}
		all = append(all, one)
	}
	if j.then != nil {
		j.then()
	}
	return all
}

// podElsewhere is the judgement of an owner whose pod is on another node.
func podElsewhere(uid string) owner.Judgement {
	return owner.Judgement{Standing: owner.Exists, RemotePodUID: uid, PodLocation: "its pod is on node node2"}
}

const three = `"ranges": [[{"subnet": "10.3.0.0/24", "rangeEnd": "10.3.0.4"}]]`

// fullNode is a node whose three addresses wait for the pods of a StatefulSet. The one of ordinal 1 was released first.
func fullNode(t *testing.T, more string) (*node, *fakeJudge) {
	t.Helper()
	n := newNode(t, `"sticky": "owner", "quarantine": "0s", `+more+three)
	j := &fakeJudge{fakeOwners: fakeOwners{answers: map[string]owner.Answer{"web-0": replica(0), "web-1": replica(1), "web-2": replica(2), "new": replica(7), "next": replica(8), "stranger": plain("stranger")}}, judged: map[int]owner.Judgement{}}
	n.owners = j
	n.add(t, "c0/eth0", "web-0", "10.3.0.2")
	n.add(t, "c1/eth0", "web-1", "10.3.0.3")
	n.add(t, "c2/eth0", "web-2", "10.3.0.4")
	for _, c := range []string{"c1/eth0", "c0/eth0", "c2/eth0"} {
		n.del(t, c)
		n.later(time.Second)
	}
	return n, j
}

const noneFree = "relink-ipam: range set 0 (10.3.0.1-10.3.0.4) of network pods: no address is free: 0 held, 3 reserved, 0 in quarantine; relink ipam list says for whom"

// The address that waits for a pod on another node is given to a pod that would not start otherwise. That of the pod that left first
// goes first, and only as many as are needed.
func TestAnAddressOfAPodElsewhereIsTheLastResort(t *testing.T) {
	n, j := fullNode(t, "")
	j.judged[0], j.judged[1] = podElsewhere("uid-0"), podElsewhere("uid-1")
	n.add(t, "d1/eth0", "new", "10.3.0.3")
	n.expect(t, "one is given up", "10.3.0.2 reserved c0/eth0 web", "10.3.0.3 held d1/eth0 web", "10.3.0.4 reserved c2/eth0 web")
	if got, want := n.stderr.String(), "relink-ipam: 10.3.0.3 does not wait for StatefulSet default/web, ordinal 1 any more: no address was free, and its pod is on node node2\n"; got != want {
		t.Errorf("stderr says %q, want %q", got, want)
	}
	events, err := n.store(t).History(t.Context(), netip.MustParseAddr("10.3.0.3"))
	if why := events[len(events)-2].Reason; err != nil || why != "no address was free, and its pod is on node node2" {
		t.Errorf("%q, %v", why, err)
	}
	n.add(t, "d2/eth0", "next", "10.3.0.2")
	_, err = n.tryAdd(t, "d3/eth0", "web-1", "") // It comes back.
	n.expectError(t, "the last one waits", err, 11, strings.Replace(noneFree, "0 held, 3 reserved", "2 held, 1 reserved", 1)+
		"; 10.3.0.4 is kept for StatefulSet default/web, ordinal 2: its pod does not exist")
	n.add(t, "d4/eth0", "web-2", "10.3.0.4")
	before := j.questions
	_, err = n.tryAdd(t, "d5/eth0", "web-1", "")
	n.expectError(t, "all are held", err, 11, strings.Replace(noneFree, "0 held, 3 reserved", "3 held, 0 reserved", 1))
	if j.questions != before {
		t.Error("somebody was asked where nothing waits")
	}
}

// The node was started again, and nobody has called DEL. Its pods are elsewhere.
func TestAnAddressOfAPodElsewhereAfterABoot(t *testing.T) {
	n, j := fullNode(t, "")
	for i, pod := range []string{"web-0", "web-1", "web-2"} {
		if _, err := n.tryAdd(t, "e/net"+string(rune('0'+i)), pod, ""); err != nil {
			t.Fatal(err)
		}
	}
	n.reboot(time.Minute)
	j.judged[1] = podElsewhere("uid-1")
	n.add(t, "d1/eth0", "new", "10.3.0.3")
}

// Whatever is not proven keeps the address, and so does whatever was said of the time that it waits.
func TestAnAddressIsKeptForAPod(t *testing.T) {
	const kept = "; 10.3.0.3 is kept for StatefulSet default/web, ordinal 1: "
	for name, test := range map[string]struct {
		more string
		make func(t *testing.T, n *node, j *fakeJudge)
		why  string
	}{
		"its pod is here": {"", func(_ *testing.T, _ *node, j *fakeJudge) {
			j.judged[1] = owner.Judgement{Standing: owner.Exists, PodLocation: "its pod is on this node"}
		}, kept + "its pod is on this node"},
		"the API is away": {"", func(_ *testing.T, _ *node, j *fakeJudge) {
			j.judged[1] = owner.Judgement{Standing: owner.Unknown, Reason: "HTTP status 500", RemotePodUID: "uid-1"}
		}, kept + "HTTP status 500"},
		"the owner is gone": {"", func(_ *testing.T, _ *node, j *fakeJudge) {
			j.judged[1] = owner.Judgement{Standing: owner.Gone, Reason: "it was made anew"}
		}, kept + "it was made anew"},
		"an old agent": {"", func(_ *testing.T, _ *node, j *fakeJudge) { j.judged[1] = owner.Judgement{Standing: owner.Exists} },
			kept + "relink-agent does not tell where its pod is"},
		"another cluster": {"", func(t *testing.T, n *node, j *fakeJudge) {
			if err := n.store(t).SetCluster(t.Context(), "the first cluster"); err != nil {
				t.Fatal(err)
			}
			j.judged[1] = podElsewhere("uid-1")
		}, kept + "network pods: the Kubernetes API is another cluster's: the UID of its namespace kube-system is this cluster, and was the first cluster, so none of its owners " +
			"counts as gone. Correct --kubeconfig; if this node has joined another cluster for good, run relink ipam reset-machine --network pods --data-dir DIR"},
		"a cluster that is not told": {"", func(_ *testing.T, _ *node, j *fakeJudge) {
			judged := podElsewhere("uid-1")
			judged.NoCluster = "forbidden"
			j.judged[1] = judged
		}, kept + "the Kubernetes API does not tell which cluster it is: forbidden"},
		"nobody can be asked": {"", func(_ *testing.T, n *node, j *fakeJudge) { n.owners = &j.fakeOwners }, "; no relink-agent runs on this node"},
		"it has come back, and gone again": {"", func(t *testing.T, n *node, j *fakeJudge) {
			j.judged[1] = podElsewhere("uid-1")
			j.then = func() {
				j.then = nil
				n.add(t, "f/eth0", "web-1", "10.3.0.3")
				n.later(time.Second)
				n.del(t, "f/eth0")
			}
		}, kept + "10.3.0.3 is not as expected: it is reserved for StatefulSet default/web, ordinal 1"},
		"its time is not over": {`"retain": "1h", `, func(_ *testing.T, _ *node, j *fakeJudge) { j.judged[1] = podElsewhere("uid-1") }, ""},
		"an operator has reserved it": {"", func(t *testing.T, n *node, j *fakeJudge) {
			for i, a := range []string{"10.3.0.2", "10.3.0.3", "10.3.0.4"} {
				if _, err := n.store(t).Reserve(t.Context(), netip.MustParseAddr(a), replica(i).Owner, 0); err != nil {
					t.Fatal(err)
				}
			}
			j.judged[1] = podElsewhere("uid-1")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n, j := fullNode(t, test.more)
			test.make(t, n, j)
			_, err := n.tryAdd(t, "d1/eth0", "stranger", "")
			n.expectError(t, name, err, 11, noneFree+test.why)
			if l, err := n.store(t).Get(t.Context(), netip.MustParseAddr("10.3.0.3")); err != nil || l.State != lease.Reserved || l.Owner != replica(1).Owner {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
}

// A pod of the same UID cannot have had the address here and run elsewhere. An owner that still holds an address here is here.
func TestWhatContradictsTheAPI(t *testing.T) {
	n, j := fullNode(t, "")
	args := n.args("g/eth0", "web-1")
	args.Args += ";K8S_POD_UID=uid-1"
	if _, err := n.begin(t, args).Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.del(t, "g/eth0")
	j.judged[1], j.judged[0] = podElsewhere("uid-1"), podElsewhere("uid-0")
	n.add(t, "h/net1", "web-2", "10.3.0.4")
	j.judged[2] = podElsewhere("uid-2")
	n.add(t, "d1/eth0", "new", "10.3.0.2")
	_, err := n.tryAdd(t, "d2/eth0", "next", "")
	n.expectError(t, "the same pod", err, 11, strings.Replace(noneFree, "0 held, 3 reserved", "2 held, 1 reserved", 1)+
		"; 10.3.0.3 is kept for StatefulSet default/web, ordinal 1: its pod is on node node2, and had the address here")
}

// A set of each family: only what lacks an address gives one up.
func TestOnlyTheFullSetGivesUp(t *testing.T) {
	n := newNode(t, `"sticky": "owner", "quarantine": "0s", "ranges": [[{"subnet": "10.3.0.0/24", "rangeEnd": "10.3.0.2"}], [{"subnet": "fd00:3::/120", "rangeEnd": "fd00:3::9"}]]`)
	j := &fakeJudge{fakeOwners: fakeOwners{answers: map[string]owner.Answer{"web-1": replica(1), "new": replica(7)}}, judged: map[int]owner.Judgement{1: podElsewhere("uid-1")}}
	n.owners = j
	n.add(t, "c1/eth0", "web-1", "10.3.0.2 fd00:3::2")
	n.del(t, "c1/eth0")
	n.add(t, "d1/eth0", "new", "10.3.0.2 fd00:3::3")
	n.expect(t, "IPv6 waits", "10.3.0.2 held d1/eth0 web", "fd00:3::2 reserved c1/eth0 web", "fd00:3::3 held d1/eth0 web")
}
