package audit

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// ownersOfPods are the owners by the names of their pods.
type ownersOfPods map[string]attachment.Owner

func (all ownersOfPods) Ask(_ context.Context, q owner.Question) (owner.Answer, error) {
	if o, is := all[q.Pod.Name]; is {
		return owner.Answer{Owner: o}, nil
	}
	return owner.Answer{}, errors.New("the pod is not in the API")
}

// Who cannot be asked about, or is nobody who waits, does not count.
func TestAskForUnattached(t *testing.T) {
	vm := attachment.Owner{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "shop", Name: "db", UID: "u2"}
	runs := func(id, name string) sandbox.RuntimeSandbox {
		return sandbox.RuntimeSandbox{ContainerID: id, Ready: true, Pod: attachment.Pod{Namespace: "shop", Name: name, UID: "u-" + name}}
	}
	stopped, old, elsewhere := runs("c1", "web-0"), runs("c1", "web-0"), runs("c2", "unknown")
	stopped.Ready, old.Pod.UID, elsewhere.Pod.Namespace = false, "", "bank"
	for name, test := range map[string]struct {
		standing owner.Standing
		runtime  []sandbox.RuntimeSandbox
		make     func(*Snapshot)
		want     []string
	}{
		"it runs":                             {owner.Exists, []sandbox.RuntimeSandbox{runs("c1", "web-0")}, nil, []string{"c1"}},
		"it runs twice":                       {owner.Exists, []sandbox.RuntimeSandbox{runs("c1", "web-0"), runs("c2", "web-0")}, nil, []string{"c1", "c2"}},
		"beside others":                       {owner.Exists, []sandbox.RuntimeSandbox{runs("c1", "web-0"), runs("c2", "web-1"), runs("c3", "db")}, nil, []string{"c1"}},
		"beside one that nobody knows":        {owner.Exists, []sandbox.RuntimeSandbox{runs("c1", "web-0"), runs("c2", "unknown")}, nil, nil},
		"nobody knows one of another project": {owner.Exists, []sandbox.RuntimeSandbox{runs("c1", "web-0"), elsewhere}, nil, []string{"c1"}},
		"it has stopped":                      {owner.Exists, []sandbox.RuntimeSandbox{stopped}, nil, nil},
		"the runtime gives no UID":            {owner.Exists, []sandbox.RuntimeSandbox{old}, nil, nil},
		"its owner is gone":                   {owner.Gone, []sandbox.RuntimeSandbox{runs("c1", "web-0")}, nil, nil},
		"the API does not answer":             {owner.Unknown, []sandbox.RuntimeSandbox{runs("c1", "web-0")}, nil, nil},
		"it has a checkpoint":                 {owner.Exists, []sandbox.RuntimeSandbox{runs("c1", "web-0")}, func(w *Snapshot) { w.record("c1", 1, "eth0", "san", "", web(0)) }, nil},
		"it has a lease":                      {owner.Exists, []sandbox.RuntimeSandbox{runs("c1", "web-0")}, func(w *Snapshot) { w.hold("c1", 1, "eth0", "lan", "10.3.0.9", web(0)) }, nil},
		"the runtime did not tell of all":     {owner.Exists, []sandbox.RuntimeSandbox{runs("c1", "web-0")}, func(w *Snapshot) { w.Sandboxes.NotAsked = "the shim is away" }, nil},
	} {
		w := newSnapshot()
		w.standing(web(0), test.standing, "the API says so")
		w.standing(vm, owner.Exists, "it is there")
		w.Sandboxes.Runtime = map[string]sandbox.RuntimeSandbox{}
		for _, s := range test.runtime {
			w.Sandboxes.Runtime[s.ContainerID] = s
		}
		if test.make != nil {
			test.make(&w)
		}
		w.findUnattached(t.Context(), Sources{Asker: ownersOfPods{"web-0": web(0), "web-1": web(1), "db": vm}})
		var got []string
		for _, s := range w.Owners.Unattached[web(0)] {
			got = append(got, s.ContainerID)
		}
		slices.Sort(got)
		if diff := cmp.Diff(test.want, got); diff != "" || len(w.Owners.Unattached) > 1 {
			t.Errorf("%s: %s %v", name, diff, w.Owners.Unattached)
		}
	}
}
