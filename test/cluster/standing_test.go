package cluster

import (
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/test/node"
)

func (a *api) whoIsGone(t *testing.T, o *kube.Owners) {
	set, kruise := a.setOf(t, "StatefulSet.apps", "shop", "sts", m{"replicas": 2, "ordinals": m{"start": 1}}), a.setOf(t, "StatefulSet.apps.kruise.io", "shop", "sts", m{"replicas": 2, "reserveOrdinals": []any{"1-1"}})
	vm, gone := a.make(t, "VirtualMachine.kubevirt.io", "shop", "lives", nil), a.make(t, "VirtualMachine.kubevirt.io", "shop", "gone", nil)
	pod, ended := a.podOn(t, "shop", "lives"), a.podOn(t, "shop", "ended")
	a.merge(t, ended.path()+"/status", m{"status": m{"phase": "Succeeded"}})
	a.delete(t, gone)
	anew := a.make(t, "VirtualMachine.kubevirt.io", "shop", "gone", nil)
	deleted := a.setOf(t, "StatefulSet.apps", "shop", "deleted", m{"replicas": 1})
	a.merge(t, deleted.path(), m{"metadata": m{"finalizers": []string{"example.org/hold"}}})
	a.delete(t, deleted)
	a.definition(t, "example.org", "Thing", "things", []string{"v1"}, nil)
	a.ask(t, http.MethodDelete, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.org", "", nil)
	await(t, 20*time.Second, "the end of things", func() bool {
		_, status := a.try(http.MethodGet, "/apis/example.org/v1/namespaces/shop/things/x", "", nil)
		return status == http.StatusNotFound
	})
	at := func(of made, ordinal int) attachment.Owner { return lasting(of, attachment.OrdinalOf(ordinal)).Owner }
	none := func(kind, name string) attachment.Owner { return lasting(made{kind, "shop", name, zeroUID}, 0).Owner }
	for _, test := range []struct {
		owner attachment.Owner
		want  owner.Standing
		why   string
	}{
		{at(set, 0), owner.Gone, "its ordinals begin with 1"},
		{at(set, 2), owner.Exists, "uses the ordinal 2"},
		{at(set, 3), owner.Gone, "it is scaled to 2 replicas, and ordinal 3 would be number 3 of them"},
		{at(kruise, 1), owner.Gone, "its reserveOrdinals leave out ordinal 1"},
		{at(kruise, 2), owner.Exists, "uses the ordinal 2"},
		{at(kruise, 3), owner.Gone, "it is scaled to 2 replicas"},
		{at(deleted, 0), owner.Exists, "is being deleted"},
		{at(vm, -1), owner.Exists, "exists with this UID"},
		{at(gone, -1), owner.Gone, "was made anew: its UID is " + string(anew.uid)},
		{itself(pod).Owner, owner.Exists, "the pod exists with this UID"},
		{itself(ended).Owner, owner.Gone, "its phase is Succeeded"},
		{attachment.Pod{Namespace: "shop", Name: "lives"}.Owner(), owner.Unknown, "by its name only"},
		{itself(made{"Pod", "shop", "none", zeroUID}).Owner, owner.Gone, `does not exist: pods "none" not found`},
		{itself(made{"Pod", "nowhere", "none", zeroUID}).Owner, owner.Gone, `does not exist: pods "none" not found`},
		{none("StatefulSet.apps", "none"), owner.Gone, `does not exist: statefulsets.apps "none" not found`},
		{none("VirtualMachine.kubevirt.io", "none"), owner.Gone, `does not exist: virtualmachines.kubevirt.io "none" not found`},
		{none("Thing.example.org", "x"), owner.Unknown, "no such kind"},
		{none("ConfigMap", "x"), owner.Unknown, `needs the rule {apiGroups: [""], resources: ["configmaps"], verbs: ["get"]}`},
	} {
		if got := o.Judge(t.Context(), []attachment.Owner{test.owner}); len(got) != 1 || got[0].Standing != test.want || !strings.Contains(got[0].Reason, test.why) {
			t.Errorf("%v: %+v, want %s: %s", test.owner, got, test.want, test.why)
		}
	}
	// OpenKruise is uninstalled: that proves nothing about its StatefulSets.
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/statefulsets.apps.kruise.io"
	a.ask(t, http.MethodDelete, definitions, "", nil)
	await(t, 20*time.Second, "the definition's end", func() bool {
		_, status := a.try(http.MethodGet, definitions, "", nil)
		return status == http.StatusNotFound
	})
	await(t, 20*time.Second, "an answer that proves nothing", func() bool {
		got := o.Judge(t.Context(), []attachment.Owner{at(kruise, 2)})[0]
		return got.Standing == owner.Unknown && strings.Contains(got.Reason, "the Kubernetes API does not serve it: /apis/apps.kruise.io/v1alpha1 has no statefulsets")
	})
}

// eachRule takes the rules of the role away, one after the other. The agent says each time which one it needs.
func (a *api) eachRule(t *testing.T) {
	set := a.setOf(t, "StatefulSet.apps", "shop", "rule", m{"replicas": 1})
	a.make(t, "IPAMClaim.k8s.cni.cncf.io", "shop", "vm.rule", m{"spec": m{"network": "lan", "interface": "lan0"}})
	pod := a.podOn(t, "shop", "rule-0", by(set))
	run := a.make(t, "VirtualMachineInstance.kubevirt.io", "shop", "rule", nil)
	launcher := a.listed(t, run, a.podOn(t, "shop", "virt-launcher-rule", by(run), annotated("k8s.v1.cni.cncf.io/networks", `[{"interface":"eth0","ipam-claim-reference":"vm.rule"}]`)))
	kruise := a.podOn(t, "shop", "kruise-0", by(made{"StatefulSet.apps.kruise.io", "shop", "kruise", zeroUID}))
	asks := func(pod made) func() error {
		return func() error {
			o, _ := a.owners(t) // It has seen nothing yet.
			q := question(pod)
			q.Claims = true
			_, err := o.Ask(t.Context(), q)
			return err
		}
	}
	fulfils := func() error {
		claim := a.make(t, "IPAMClaim.k8s.cni.cncf.io", "shop", fmt.Sprintf("vm.rule-%d", time.Now().UnixNano()), m{"spec": m{"network": "lan", "interface": "lan0"}})
		o, _ := a.owners(t)
		f := owner.Fulfilment{Pod: question(pod).Pod, Claim: owner.Claim{Name: claim.name, UID: string(claim.uid)}, IPs: []netip.Prefix{netip.MustParsePrefix("10.3.0.9/24")}}
		return o.Fulfil(t.Context(), f)
	}
	knows := func() error {
		o, _ := a.owners(t)
		if j := o.Judge(t.Context(), []attachment.Owner{lasting(set, 0).Owner})[0]; j.Cluster == "" {
			return errors.New(j.NoCluster)
		}
		return nil
	}
	watches := func() error {
		o, log := a.owners(t)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		o.Run(ctx)
		return errors.New(log.String())
	}
	// In the order of the role.
	try := []struct {
		want string
		do   func() error
	}{
		{"pods is forbidden", watches},
		{`apiGroups: [""], resources: ["namespaces"], verbs: ["get"]`, knows},
		{`apiGroups: ["apps"], resources: ["statefulsets"], verbs: ["get"]`, asks(pod)},
		{`apiGroups: ["apps.kruise.io"], resources: ["statefulsets"], verbs: ["get"]`, asks(kruise)},
		{`apiGroups: ["kubevirt.io"], resources: ["virtualmachineinstances"], verbs: ["get"]`, asks(launcher)},
		{`apiGroups: ["k8s.cni.cncf.io"], resources: ["ipamclaims"], verbs: ["get"]`, asks(launcher)},
		{`apiGroups: ["k8s.cni.cncf.io"], resources: ["ipamclaims/status"], verbs: ["patch"]`, fulfils},
	}
	a.ask(t, http.MethodDelete, where["ClusterRoleBinding"]+"/relink-agent-conditions", "", nil) // It lets the agent watch pods, too.
	const role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/relink-agent-owners"
	var whole struct{ Rules []m }
	if err := json.Unmarshal(a.ask(t, http.MethodGet, role, "", nil), &whole); err != nil || len(whole.Rules) != len(try) {
		t.Fatalf("%d rules, %v", len(whole.Rules), err)
	}
	apply := func(rules []m) {
		b, err := json.Marshal(m{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": m{"name": "relink-agent-owners"}, "rules": rules})
		if err != nil {
			t.Fatal(err)
		}
		a.ask(t, http.MethodPatch, role+"?fieldManager=test", "application/apply-patch+yaml", b)
	}
	for i := range whole.Rules {
		if err := try[i].do(); err != nil && strings.Contains(err.Error(), try[i].want) {
			t.Errorf("with all rules: %v", err)
		}
		apply(slices.Delete(slices.Clone(whole.Rules), i, i+1))
		await(t, 10*time.Second, "a word about the rule "+try[i].want, func() bool {
			last := try[i].do()
			return last != nil && strings.Contains(last.Error(), try[i].want)
		})
		apply(whole.Rules)
		await(t, 10*time.Second, "the rule "+try[i].want, func() bool {
			last := try[i].do()
			return last == nil || !strings.Contains(last.Error(), try[i].want)
		})
	}
}

// asKubelet has the credentials of the node. They show its pods, and no owners.
func (a *api) asKubelet(t *testing.T) {
	a.keys.issue(t, "kubelet", pkix.Name{CommonName: "system:node:node1", Organization: []string{"system:nodes"}})
	o, log := connected(t, a, "kubelet.conf", "{client-certificate: kubelet.crt, client-key: kubelet.key}")
	go o.Run(t.Context())
	pod := a.podOn(t, "shop", "of-the-node")
	if got, err := o.Ask(t.Context(), question(pod)); err != nil || !cmp.Equal(got, itself(pod)) {
		t.Errorf("%+v, %v", got, err)
	}
	set := a.setOf(t, "StatefulSet.apps", "shop", "of-the-node", m{"replicas": 1})
	const want = `needs the rule {apiGroups: ["apps"], resources: ["statefulsets"], verbs: ["get"]}, which a kubelet has only if you bind it to the group system:nodes`
	if got, err := o.Ask(t.Context(), question(a.podOn(t, "shop", "of-the-node-0", by(set)))); !errors.Is(err, owner.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("%+v, %v, want %s", got, err, want)
	}
	if got := o.Judge(t.Context(), []attachment.Owner{lasting(set, 1).Owner})[0]; got.Standing != owner.Unknown || !strings.Contains(got.Reason, want) {
		t.Errorf("%+v", got)
	}
	if text := log.String(); text != "" {
		t.Errorf("the node's pods are not shown to its kubelet:\n%s", text)
	}
}

// away stops the API and starts it again.
func (a *api) away(t *testing.T, o *kube.Owners, log *node.Log) {
	set := a.setOf(t, "StatefulSet.apps", "shop", "away", m{"replicas": 1})
	seen, unseen := a.podOn(t, "shop", "away-0", by(set)), a.podOn(t, "shop", "away-1", by(set))
	await(t, 5*time.Second, "the owner of away-0", func() bool { _, err := o.Ask(t.Context(), question(seen)); return err == nil })
	time.Sleep(200 * time.Millisecond) // The watch shows the pod.
	a.stop()
	if got, err := o.Ask(t.Context(), question(seen)); err != nil || !cmp.Equal(got, lasting(set, attachment.OrdinalOf(0))) {
		t.Errorf("what was seen before: %+v, %v", got, err)
	}
	if got, err := o.Ask(t.Context(), question(unseen)); !errors.Is(err, owner.ErrUnavailable) || !strings.Contains(err.Error(), "the Kubernetes API does not answer") {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := o.Ask(t.Context(), question(made{"Pod", "shop", "static", hash})); err != nil || !got.Persistent {
		t.Errorf("a static pod: %+v, %v", got, err)
	}
	if got := o.Judge(t.Context(), []attachment.Owner{lasting(set, 1).Owner})[0]; got.Standing != owner.Unknown || !strings.Contains(got.Reason, "the Kubernetes API does not answer") {
		t.Errorf("%+v", got)
	}
	await(t, 20*time.Second, "a word in the log", func() bool { return log.String() != "" })
	a.start(t)
	if got, err := o.Ask(t.Context(), question(unseen)); err != nil || !cmp.Equal(got, lasting(set, attachment.OrdinalOf(1))) {
		t.Errorf("%+v, %v", got, err)
	}
	await(t, 40*time.Second, "the watch", func() bool { return strings.Contains(log.String(), "shows the pods of this node again") })
	if text := log.String(); strings.Count(text, "\n") != 2 || strings.Count(text, "does not show the pods of this node") != 1 {
		t.Errorf("the log is\n%s", text)
	}
}
