package capture

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/test/fresh"
)

// fakeRuntime is a container runtime with these sandboxes, or one that fails.
type fakeRuntime struct {
	sandboxes []sandbox.RuntimeSandbox
	err       error
}

func (r fakeRuntime) Sandboxes(context.Context) ([]sandbox.RuntimeSandbox, error) {
	return r.sandboxes, r.err
}

// keepResult writes a result of libcni below dir.
func keepResult(t *testing.T, dir, network, id, ifName, netns string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"kind": "cniCacheV1", "containerId": id, "ifName": ifName, "networkName": network, "netns": netns, "config": []byte("{}"),
		"cniArgs": [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "web"}}, "result": map[string]any{"cniVersion": "1.0.0"},
	})
	if err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, network+"-"+id+"-"+ifName), b, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestStageOfAnADD(t *testing.T) {
	netns := fresh.Sandbox(t)
	file, _ := sandbox.Identify(netns)
	web := attachment.Pod{Namespace: "shop", Name: "web", UID: "u1"}
	known := func(ready bool) []sandbox.RuntimeSandbox {
		return []sandbox.RuntimeSandbox{{ContainerID: "c1", Pod: web, Ready: ready, Netns: netns}}
	}
	for name, test := range map[string]struct {
		runtime  sandbox.Runtime
		results  []string // directories
		want     ADD
		because  string
		identity Identity
	}{
		"the runtime says that it is ready": {
			fakeRuntime{sandboxes: known(true)}, nil, ADDEnded, "the container runtime says that the sandbox is ready",
			Identity{Attachment: attachment.Key{Network: "unknown", ContainerID: "c1", IfName: "net1"}, Pod: web, Note: `no CNI cache knows the interface's network: it is remembered as "unknown"`},
		},
		"the runtime has stopped it": {fakeRuntime{sandboxes: known(false)}, nil, DELDue, "the container runtime has stopped the sandbox", Identity{}},
		"the runtime does not have it yet, and one delegate is ready": {
			fakeRuntime{}, []string{"multus/results"}, ADDUnderWay, "neither the container runtime nor a CNI cache knows the sandbox", Identity{},
		},
		"the runtime's libcni has kept the result": {
			fakeRuntime{err: errors.New("it hangs")}, []string{"results", "multus/results"}, ADDEnded, "libcni has kept the result of its ADD", Identity{},
		},
		"libcni has kept a result, and the runtime answers": {
			fakeRuntime{}, []string{"results"}, ADDKept, "the container runtime does not have the sandbox yet", Identity{},
		},
		"containerd's loopback is ready": {
			fakeRuntime{err: errors.New("it hangs")}, []string{"loopback"}, ADDUnderWay,
			"no CNI cache knows the sandbox, and the container runtime does not tell of it: it hangs", Identity{},
		},
		"the runtime does not answer": {
			fakeRuntime{err: errors.New("it hangs")}, []string{"multus/results"}, ADDUnderWay,
			"no CNI cache knows the sandbox, and the container runtime does not tell of it: it hangs", Identity{},
		},
		"neither a runtime nor a cache": {fakeRuntime{err: sandbox.ErrNoRuntime}, nil, ADDUnknown, "there is no container runtime, and no CNI cache", Identity{}},
		"no runtime can be asked, and the node has caches": {
			fakeRuntime{err: sandbox.ErrNoRuntime}, []string{"multus/results"}, ADDUnderWay,
			"no CNI cache knows the sandbox, and the container runtime does not tell of it: no container runtime found", Identity{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, results := range test.results {
				if results == "loopback" {
					keepResult(t, filepath.Join(dir, "results"), "cni-loopback", "c1", "lo", netns)
					continue
				}
				keepResult(t, filepath.Join(dir, results), "lan", "c1", "net1", netns)
			}
			ids := IdentitySources{Cache: &cnicache.Cache{Dir: dir}, Runtime: test.runtime}.Read(t.Context())
			if stage, reason := ids.stage(file); stage != test.want || reason != test.because {
				t.Errorf("%s, %s", stage, reason)
			}
			namespace := attachment.Namespace{Device: file.Device, Inode: file.Inode}
			if got := identify(namespace, nil, netstate.Link{Name: "net1"}, ids.entries[file], nil); test.identity.Pod.Name != "" && !cmp.Equal(got, test.identity) {
				t.Errorf("it is %+v", got)
			}
		})
	}
}

// Multus's status names the network that no cache names. What another container has left at the path does not count.
func TestIdentityByTheNetworkStatus(t *testing.T) {
	netns, dir := fresh.Sandbox(t), t.TempDir()
	file, _ := sandbox.Identify(netns)
	keepResult(t, filepath.Join(dir, "results"), "old", "c0", "net1", netns)
	web := attachment.Pod{Namespace: "shop", Name: "web", UID: "u1"}
	sources := IdentitySources{
		Cache: &cnicache.Cache{Dir: dir}, Runtime: fakeRuntime{sandboxes: []sandbox.RuntimeSandbox{{ContainerID: "c1", Pod: web, Ready: true, Netns: netns}}},
		Networks: func(pod attachment.Pod) []attachment.PodNetwork {
			if pod != web {
				t.Errorf("asked for %v", pod)
			}
			return []attachment.PodNetwork{{Network: "lan", Interface: "net1", MAC: "02:00:00:00:00:01"}, {Network: "no/name", Interface: "net2"}}
		},
	}
	ids := sources.Read(t.Context())
	got := identify(attachment.Namespace{Device: file.Device, Inode: file.Inode}, nil, netstate.Link{Name: "net1", MAC: "02:00:00:00:00:01"}, ids.entries[file], nil)
	if want := (Identity{Attachment: attachment.Key{Network: "lan", ContainerID: "c1", IfName: "net1"}, Pod: web, InCache: true}); !cmp.Equal(got, want) {
		t.Errorf("it is %+v", got)
	}
}

func TestDetachedReason(t *testing.T) {
	key := attachment.Key{Network: "lan", ContainerID: "c1", IfName: "net1"}
	const torn, otherTorn = "lan-c1-net9", "lan-c2-net1"
	kept, earlier := json.RawMessage(`{"cniVersion": "1.0.0"}`), json.RawMessage(`{"cniVersion": "1.0.0", "ips": []}`)
	for name, test := range map[string]struct {
		results   []string // interfaces in Multus's cache, or names of torn files
		recorded  json.RawMessage
		goneAlone bool
		want      string
	}{
		"it went alone, and its DEL is over":                {[]string{"eth0"}, kept, true, "it went while its parent was there, and no CNI cache names it"},
		"it went alone, and its DEL is not over":            {[]string{"eth0", "net1"}, kept, true, ""},
		"it went alone, and no cache ever named it":         {nil, nil, true, "it went while its parent was there, and no CNI cache names it"},
		"it went alone, and a file is torn":                 {[]string{torn}, kept, true, ""},
		"it went alone, and another sandbox's file is torn": {[]string{otherTorn}, kept, true, "it went while its parent was there, and no CNI cache names it"},
		"it was lost, and another sandbox's file is torn":   {[]string{"eth0", otherTorn}, kept, false, "Multus's cache names its sandbox, and does not name it any more"},
		"it was detached and attached anew":                 {[]string{"eth0", "net1"}, earlier, true, "libcni has the result of a later ADD"},
		"it was lost, and is attached anew":                 {[]string{"net1"}, earlier, false, "libcni has the result of a later ADD"},
		"attached anew, and a file is torn":                 {[]string{"net1", torn}, earlier, false, ""},
		"it was lost, and its DEL is over":                  {[]string{"eth0"}, kept, false, "Multus's cache names its sandbox, and does not name it any more"},
		"it was lost, and somebody has wiped the caches":    {nil, kept, false, ""},
		"it was lost, and no cache ever named it":           {[]string{"eth0"}, nil, false, ""},
		"it was lost, and is attached":                      {[]string{"eth0", "net1"}, kept, false, ""},
		"it was lost, and a file of the caches is damaged":  {[]string{"eth0", torn}, kept, false, ""},
	} {
		dir := t.TempDir()
		for _, ifName := range test.results {
			if ifName != torn && ifName != otherTorn {
				keepResult(t, filepath.Join(dir, "multus", "results"), "lan", "c1", ifName, "/run/netns/gone")
			} else if err := errors.Join(os.MkdirAll(dir+"/results", 0o700), os.WriteFile(filepath.Join(dir, "results", ifName), []byte(`{"ki`), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		ids := IdentitySources{Cache: &cnicache.Cache{Dir: dir}}.Read(t.Context())
		if got := ids.DetachedReason(key, test.recorded, test.goneAlone); got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	dir := t.TempDir()
	keepResult(t, filepath.Join(dir, "results"), "podnet", "c1", "eth0", "/run/netns/gone")
	if got := (IdentitySources{Cache: &cnicache.Cache{Dir: dir}}).Read(t.Context()).DetachedReason(key, kept, false); got != "" {
		t.Errorf("somebody has wiped Multus's cache: %q", got)
	}
	if got := (Identities{}).DetachedReason(key, kept, true); got != "" {
		t.Errorf("nobody was asked: %q", got)
	}
}

func TestObstacle(t *testing.T) {
	file := attachment.NamespaceFile{Device: 4, Inode: 1}
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	up := netstate.Interface{Link: netstate.Link{Name: "net1", Index: 2, Kind: netstate.KindMacvlan, Up: true}}
	down := netstate.Interface{Link: netstate.Link{Name: "net1", Index: 2, Kind: netstate.KindMacvlan}}
	action := func(state change.State, reason string, i netstate.Interface) InterfaceAction {
		key := attachment.Key{Network: "lan", ContainerID: "c1", IfName: "net1"}
		return InterfaceAction{InterfaceOutcome: InterfaceOutcome{Outcome: change.Outcome{Attachment: key, State: state, Reason: reason}, Interface: i}}
	}
	vf := action(change.Refused, "a VF", up)
	vf.isVF = true
	result := cacheEntry{Entry: cnicache.Entry{Attachment: attachment.Key{Network: "lan", ContainerID: "c1", IfName: "net1"}, Netns: "/run/netns/x"}, namespace: file}
	ready := Identities{AsOf: time.Now(), runtime: map[attachment.NamespaceFile]sandbox.RuntimeSandbox{file: {ContainerID: "c1", Ready: true}}}
	cached := Identities{AsOf: time.Now(), RuntimeProblem: "it hangs", entries: map[attachment.NamespaceFile][]cacheEntry{file: {result}}}
	kept := Identities{AsOf: time.Now(), entries: cached.entries}
	stopped := Identities{AsOf: time.Now(), runtime: map[attachment.NamespaceFile]sandbox.RuntimeSandbox{file: {ContainerID: "c1"}}}
	for name, test := range map[string]struct {
		ids     Identities
		since   time.Time
		action  InterfaceAction
		dryRun  bool
		want    Obstacle
		because string
	}{
		"named by a cache":   {cached, ago(time.Second), action(Captured, "", up), false, "", ""},
		"not named, and new": {ready, ago(time.Second), action(Captured, "", up), false, ObstacleUnderWay, "no CNI cache names it: it is recorded after 10s"},
		"not named, and old": {ready, ago(time.Minute), action(Captured, "", up), false, "", ""},
		"nobody knows the sandbox": {
			Identities{AsOf: time.Now()}, ago(time.Minute), action(Captured, "", up), false, ObstacleUnderWay,
			"neither the container runtime nor a CNI cache knows the sandbox: it is recorded after 5m0s",
		},
		"nobody knows it for long": {Identities{AsOf: time.Now()}, ago(time.Hour), action(Captured, "", up), false, "", ""},
		"kept by libcni, and the runtime answers": {
			kept, ago(time.Second), action(Captured, "", up), false, ObstacleUnderWay, "the container runtime does not have the sandbox yet: it is recorded after 10s",
		},
		"kept by libcni for a while": {kept, ago(time.Minute), action(Captured, "", up), false, "", ""},
		"asked before it came":       {Identities{AsOf: ago(time.Hour)}, ago(time.Minute), action(Captured, "", up), false, ObstacleUnderWay, "nobody has said yet whose it is"},
		"a sandbox that ends":        {stopped, ago(time.Minute), action(Captured, "", up), false, "", ""},
		"the pod's own":              {ready, ago(time.Minute), action(Skipped, "the pod's own", up), false, "", ""},
		"an unknown NIC, new":        {Identities{AsOf: time.Now()}, ago(time.Minute), action(Skipped, unknownNIC, up), false, ObstacleUnderWay, "neither the container runtime nor a CNI cache knows the sandbox"},
		"an unknown NIC, old":        {Identities{AsOf: time.Now()}, ago(time.Hour), action(Skipped, unknownNIC, up), false, "", ""},
		"a VF":                       {ready, ago(time.Minute), vf, false, ObstacleVF, "a VF"},
		"down":                       {ready, ago(time.Minute), action(change.Refused, "it is down", down), false, ObstacleDown, "it is down"},
		"ambiguous":                  {ready, ago(time.Minute), action(change.Refused, "two on one parent", up), false, ObstacleRefused, "two on one parent"},
		"failed":                     {ready, ago(time.Minute), action(change.Failed, "disk full", up), false, ObstacleFailed, "disk full"},
		"only relink's own": {
			cached, ago(time.Second), action(Captured, "", up), true, ObstacleNotAsked, "the agent records only what relink's plugins attach (--record=own)",
		},
	} {
		f := FirstRecording{Namespace: attachment.Namespace{Device: 4, Inode: 1}, Identities: test.ids, Seen: map[int]time.Time{2: test.since}, DryRun: test.dryRun}
		if got, reason := f.obstacle(test.action); got != test.want || reason != test.because {
			t.Errorf("%s: %q, %q", name, got, reason)
		}
	}
}

// An ADD that is under way can make the second interface on a parent, and its result comes later: who asked before knows only one of them.
func TestObstacleOfAnADDThatGoesOn(t *testing.T) {
	for _, state := range []change.State{Skipped, change.Refused} {
		action := InterfaceAction{InterfaceOutcome: InterfaceOutcome{Outcome: change.Outcome{State: state, Reason: "beside another one"}, Interface: netstate.Interface{Link: netstate.Link{Name: "net2", Up: true}}}}
		f := FirstRecording{Identities: Identities{AsOf: time.Now().Add(-time.Second)}, ChangedAt: time.Now()}
		if got, reason := f.obstacle(action); got != ObstacleUnderWay || reason != "nobody has said yet whose it is" {
			t.Errorf("%s: %q, %q", state, got, reason)
		}
	}
}

// Another NIC under the name of one that was detached is another attachment. What is not known of a NIC proves nothing.
func TestAnotherNICUnderTheName(t *testing.T) {
	of := func(index int, mac string) netstate.Interface {
		return netstate.Interface{Link: netstate.Link{Kind: netstate.KindNIC, Name: "net1", Index: index, NIC: &netstate.NIC{PermanentMAC: mac}}}
	}
	for name, test := range map[string]struct {
		writer string
		live   netstate.Interface
		want   bool
	}{
		"another one":           {AgentWriter, of(5, "02:00:00:00:00:02"), true},
		"the same, moved back":  {AgentWriter, of(5, "02:00:00:00:00:01"), false},
		"one that tells no MAC": {AgentWriter, of(5, ""), false},
		"one of relink's own":   {"relink-checkpoint", of(5, "02:00:00:00:00:02"), false},
	} {
		record := checkpoint.Record{Writer: test.writer, Interface: of(4, "02:00:00:00:00:01")}
		if got := new(renewalRun).isReplaced(record, test.live); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
