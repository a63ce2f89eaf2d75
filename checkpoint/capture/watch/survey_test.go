package watch

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	testnet "github.com/relink-cni/relink/test/fresh"
)

// A round looks again at what nothing tells the end of, and at nothing else: an idle pod costs nothing.
func TestWhatARoundLooksAtAgain(t *testing.T) {
	key, past := attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, time.Now().Add(-time.Hour)
	recorded := func(entry attached) sandbox { return sandbox{attachments: map[attachment.Key]*attached{key: &entry}} }
	said := sandbox{unrecordedState: unrecordedState{emptyTold: true}}
	for name, test := range map[string]struct {
		sandbox sandbox
		nobody  bool // wants to hear of pods without anything to record
		want    bool
	}{
		"it is as recorded":                       {recorded(attached{}), false, false},
		"it is not as recorded":                   {recorded(attached{refused: past}), false, true},
		"it has nothing, and that was said":       {said, false, false},
		"it has nothing, and that was never said": {sandbox{}, false, true},
		"it has nothing, and nobody asks":         {sandbox{}, true, false},
		"its parent is away":                      {sandbox{lost: true}, true, true},
		"nothing leads to it":                     {sandbox{unrecordedState: unrecordedState{missingSince: past}}, true, true},
	} {
		s := &test.sandbox
		r := &Refresher{sandboxes: map[attachment.Namespace]*sandbox{{Inode: 1}: s}, survey: newSurvey()}
		if !test.nobody {
			r.OnEmpty = func(attachment.Pod) {}
		}
		r.beginRound()
		if s.pace.dirty != test.want || (len(r.survey.questions) > 0) != test.want {
			t.Errorf("%s: looked at again: %t, want %t", name, s.pace.dirty, test.want)
		}
	}
}

// keepResult writes the result of an ADD below dir as libcni does.
func keepResult(t *testing.T, dir, ifName, netns string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"kind": "cniCacheV1", "containerId": "c0", "ifName": ifName, "networkName": "lan", "netns": netns, "config": []byte("{}"), "result": map[string]any{"cniVersion": "1.0.0"},
	})
	if err = errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "lan-c0-"+ifName), b, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// A restore can end while the ADD of the pod's next interface is under way: what nobody saw before is not recorded as if it had rested.
func TestTheEndOfARestoreRecordsNothingUnderWay(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	r, s := n.newWithSandbox(t)
	dir := t.TempDir()
	r.Identities.Cache = &cnicache.Cache{Dir: dir}
	testnet.Run(t, "", "ip link add wan0 group 7 up type veth peer name wan1 && ip link add link wan0 name net1 netns "+p.path+" type macvlan")
	testnet.Run(t, p.path, "ip link set net1 up && ip addr add 10.8.0.2/24 dev net1")
	for name, ids := range map[string]capture.Identities{"nobody was asked": {}, "nobody knows": r.Identities.Read(t.Context())} {
		r.survey.identities = ids
		r.markReleased(s)
		r.read(t.Context(), s)
		if _, err := n.store.Load(p.id, "net1"); !errors.Is(err, checkpoint.ErrNoCheckpoint) || !s.underWay {
			t.Errorf("%s: net1 is recorded (%v), under way: %t", name, err, s.underWay)
		}
		clear(s.seen)
	}
	keepResult(t, filepath.Join(dir, "results"), "net1", p.path)
	r.survey.identities = r.Identities.Read(t.Context())
	r.devices = nil // A reading ends so when something about the host's devices changes.
	if err := r.record(t.Context(), s); err != nil || s.failing {
		t.Errorf("failing: %t, %v", s.failing, err)
	}
	if _, err := n.store.Load(p.id, "net1"); err != nil {
		t.Errorf("when its ADD is over: %v", err)
	}
}

// Who hears of a node for the first time hears of what a restore works on, too.
func TestAHeldSandboxIsNotSeen(t *testing.T) {
	n := newNode(t, 2)
	r, s := n.newWithSandbox(t)
	other := n.pods[1]
	r.setRecords(other.id, []checkpoint.Record{n.record(t, other)})
	r.unseen = map[*sandbox]bool{s: true}
	r.held[n.pods[0].id]++
	for range 2 { // A call reads one at most: there is something else to hear.
		if readings := r.Counters().Readings; readings > 1 || r.HasLookedAtAll() {
			t.Errorf("%d readings, all are seen: %t", readings, r.HasLookedAtAll())
		}
		r.readNext(t.Context())
	}
	r.Release(n.pods[0].id)
	r.loadRequested()
	if r.readNext(t.Context()); !r.HasLookedAtAll() {
		t.Error("the released sandbox is not seen")
	}
}

// An interface of DPDK is in the caches, and no device: nobody asks for it for ever.
func TestASandboxThatLacksAnInterfaceForLongIsNotUnderWay(t *testing.T) {
	r, _ := newNode(t, 1).newWithSandbox(t)
	netns, dir := testnet.Sandbox(t), t.TempDir()
	r.Identities.Cache = &cnicache.Cache{Dir: dir}
	r.OnEmpty = func(attachment.Pod) { t.Error("it is called empty") }
	keepResult(t, filepath.Join(dir, "results"), "net1", netns)
	r.survey.identities = r.Identities.Read(t.Context())
	namespace, err := kernel.Open(netns)
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	s := r.addSandbox(namespace.Identity())
	for age, want := range map[time.Duration]bool{time.Second: true, capture.UnknownRest + time.Second: false} {
		s.watchedAt = time.Now().Add(-age)
		if err := r.record(t.Context(), s); err != nil || s.underWay != want {
			t.Errorf("after %s, it is under way: %t, %v", age, s.underWay, err)
		}
	}
}

// A DEL takes the path first, and the kernel tells the end when it has cleaned up. Until then, nothing has proven that the sandbox is gone. What
// relink has attached goes with a DEL only.
func TestTheEndOfASandboxWithoutAPath(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	r, s := n.newWithSandbox(t)
	r.Identities.Cache = &cnicache.Cache{Dir: t.TempDir()} // It names nobody.
	var reason string
	r.OnForgotten = func(_ []attachment.Key, why string) { reason = why }
	if err := r.hear(s); err != nil {
		t.Fatal(err)
	}
	s.watchedAt = s.watchedAt.Add(-2 * settleDelay)
	if err := errors.Join(r.watch.Mute(), r.watch.Unmute()); err != nil { // A restore of most pods does that. The watch hears the same as before.
		t.Fatal(err)
	}
	if r.readEvents(); s.watched || r.hear(s) != nil {
		t.Error("it is not heard anew")
	}
	if err := unix.Unmount(p.path, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	own := n.record(t, p)
	foreign := own
	foreign.Writer = capture.AgentWriter
	for _, record := range []checkpoint.Record{own, foreign} {
		if err := n.store.Save(record); err != nil {
			t.Fatal(err)
		}
		r.setRecords(p.id, []checkpoint.Record{record})
		if r.read(t.Context(), s); reason != "" || s.missingSince.IsZero() {
			t.Errorf("forgotten: %q, missing since %s", reason, s.missingSince)
		}
	}
	p.namespace.Close()
	waitUntil(t, "the kernel tells its end", func() bool { r.readEvents(); return s.ended })
	if !r.forgetEnded(t.Context(), s) || !strings.Contains(reason, "the kernel says") {
		t.Errorf("forgotten: %q", reason)
	}
	if _, err := n.store.Load(p.id, "eth0"); !errors.Is(err, checkpoint.ErrNoCheckpoint) {
		t.Error(err)
	}
}

// Caches that somebody may have wiped prove nothing. What relink has attached goes with a DEL, or with relink gc.
func TestIsDetached(t *testing.T) {
	own, foreign := attachment.Key{ContainerID: "c1", IfName: "eth0"}, attachment.Key{ContainerID: "c1", IfName: "net1"}
	r := &Refresher{}
	for what, attachments := range map[string]map[attachment.Key]*attached{
		"own attachments":              {own: {}},
		"what no cache has named":      {own: {}, foreign: {foreign: true}},
		"what empty caches named once": {foreign: {foreign: true, result: []byte(`{}`)}},
	} {
		if r.isDetached(&sandbox{attachments: attachments}) {
			t.Errorf("%s are detached", what)
		}
	}
	dir := t.TempDir()
	keepResult(t, filepath.Join(dir, "results"), "eth0", "/run/netns/another")
	r.survey.identities = capture.IdentitySources{Cache: &cnicache.Cache{Dir: dir}}.Read(t.Context())
	if !r.isDetached(&sandbox{attachments: map[attachment.Key]*attached{own: {}, foreign: {foreign: true, result: []byte(`{}`)}}}) {
		t.Error("what the caches named once is not detached")
	}
}

// On a busy node, the namespace is mounted long after the file was made. Nothing tells that.
func TestWhenSandboxesAreLookedForAfterAHint(t *testing.T) {
	began := time.Now()
	v := newSurvey()
	v.roundAt = began
	v.planNext(began)
	v.hint(began)
	for _, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, surveyRound} {
		if got := v.due.Sub(began); got != want {
			t.Errorf("after %s, want %s", got, want)
		}
		v.planNext(v.due)
	}
	v.hint(began.Add(30 * time.Second))
	v.planNext(began.Add(30*time.Second + time.Millisecond)) // A look for an earlier hint.
	if got, want := v.due.Sub(began), 30*time.Second+time.Millisecond+surveyDelay; got != want {
		t.Errorf("after %s, want %s", got, want)
	}
}

// The answer that an ADD is over is used at once, however often the sandbox was looked at in vain. One that says nothing new brings no look forward.
func TestTheEndOfALongADDIsUsedAtOnce(t *testing.T) {
	n := newNode(t, 1)
	r, s := n.newWithSandbox(t)
	dir, next := t.TempDir(), time.Now().Add(longestRetry)
	sources := capture.IdentitySources{Cache: &cnicache.Cache{Dir: dir}}
	s.underWay, s.pace.notBefore = true, next
	r.survey.identities = sources.Read(t.Context())
	if r.takeIdentities(t.Context(), sources.Read(t.Context())); !s.due.Equal(next) {
		t.Errorf("the look is %s earlier", next.Sub(s.due))
	}
	keepResult(t, filepath.Join(dir, "results"), "eth0", n.pods[0].path)
	if r.takeIdentities(t.Context(), sources.Read(t.Context())); s.due.After(time.Now()) {
		t.Errorf("the look is in %s", time.Until(s.due))
	}
}

// An interface on another one of its pod goes with the NIC below both. What Multus detaches meanwhile is forgotten.
func TestWhatIsDetachedDuringALossIsForgotten(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	r, s := n.newWithSandbox(t)
	r.OnForgotten = func([]attachment.Key, string) {}
	own := n.record(t, p)
	stacked := own
	stacked.Writer, stacked.Attachment.IfName, stacked.CNI.Result = capture.AgentWriter, "net3", []byte(`{"cniVersion": "1.0.0"}`)
	stacked.Interface.Link.Name, stacked.Interface.Link.Index, stacked.Interface.ParentsInSandbox = "net3", 999, true
	stacked.Interface.Parents = []netstate.Device{{Kind: netstate.KindMacvlan, Name: "eth0", MTU: 1500}}
	if err := n.store.Save(stacked); err != nil {
		t.Fatal(err)
	}
	r.setRecords(p.id, []checkpoint.Record{own, stacked})
	dir := t.TempDir()
	keepResult(t, filepath.Join(dir, "multus", "results"), "eth0", p.path)
	ids := capture.IdentitySources{Cache: &cnicache.Cache{Dir: dir}}.Read(t.Context())
	forgotten := func() bool {
		r.devices = nil
		r.forgetDetached(t.Context(), s, ids)
		_, err := n.store.Load(p.id, "net3")
		return errors.Is(err, checkpoint.ErrNoCheckpoint)
	}
	if forgotten() {
		t.Error("it is forgotten while nothing is lost")
	}
	n.deleteParent(t)
	defer n.build(t)
	if !forgotten() {
		t.Error("it is not forgotten")
	}
	n.record(t, p)
}
