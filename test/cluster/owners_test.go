package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/owner"
)

const zeroUID = "00000000-0000-4000-8000-000000000001"

// ofPods has Owners answer by a real API, with the rights of deploy/: for each kind of pod, and for names that collide.
func (a *api) ofPods(t *testing.T) {
	o, log := a.owners(t)
	go o.Run(t.Context())
	t.Run("who it is", func(t *testing.T) { a.whoItIs(t, o) })
	t.Run("claims", func(t *testing.T) { a.claims(t, o) })
	t.Run("named owners", func(t *testing.T) { a.named(t, o) })
	t.Run("who is gone", func(t *testing.T) { a.whoIsGone(t, o) })
	t.Run("each rule is needed", func(t *testing.T) { a.eachRule(t) })
	t.Run("with the kubelet's rights", func(t *testing.T) { a.asKubelet(t) })
	if text := log.String(); text != "" {
		t.Errorf("the log is\n%s", text)
	}
	t.Run("the API is away", func(t *testing.T) { a.away(t, o, log) })
}

func (a *api) whoItIs(t *testing.T, o *kube.Owners) {
	web, kruise := a.setOf(t, "StatefulSet.apps", "shop", "web", m{"replicas": 3, "ordinals": m{"start": 5}}), a.setOf(t, "StatefulSet.apps.kruise.io", "shop", "web", m{"replicas": 3, "reserveOrdinals": []any{1, "3-4"}})
	db, mydb := a.make(t, "VirtualMachine.kubevirt.io", "shop", "db", nil), a.make(t, "VirtualMachine.kubevirt.io", "shop", "mydb", nil)
	bankDB := a.make(t, "VirtualMachine.kubevirt.io", "bank", "db", nil)
	ab, ac := a.make(t, "VirtualMachine.kubevirt.io", "shop", "a.b", nil), a.make(t, "VirtualMachine.kubevirt.io", "shop", "a.c", nil)
	vmi := func(vm made, parts ...m) made {
		return a.make(t, "VirtualMachineInstance.kubevirt.io", vm.namespace, vm.name, with(append([]m{by(vm)}, parts...)...))
	}
	launcher := func(run made, parts ...m) made {
		labels := m{"metadata.labels": m{"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "a", "kubevirt.io/created-by": string(run.uid)}}
		return a.listed(t, run, a.podOn(t, run.namespace, "virt-launcher-"+strings.ReplaceAll(run.name, ".", "-")+fmt.Sprintf("-%d", time.Now().UnixNano()%100000), with(append([]m{by(run), labels}, parts...)...)))
	}
	dbRun, abRun, acRun := vmi(db), vmi(ab), vmi(ac)
	dbLauncher := launcher(dbRun)
	dbTarget := launcher(dbRun, m{"metadata.labels": m{"kubevirt.io/migrationJobUID": "x"}})
	alone := a.make(t, "VirtualMachineInstance.kubevirt.io", "shop", "alone", nil)
	stale := made{"StatefulSet.apps", "shop", "web", zeroUID}
	notController := by(web)
	notController["metadata.ownerReferences"].([]m)[0]["controller"] = false
	staleVM := made{"VirtualMachine.kubevirt.io", "shop", "orphan", zeroUID}
	orphan := vmi(staleVM)
	podDB := a.podOn(t, "shop", "db")
	for name, test := range map[string]struct {
		pod  made
		want owner.Answer
	}{
		"a pod":                       {podDB, itself(podDB)},
		"a StatefulSet's":             {a.podOn(t, "shop", "web-6", by(web)), lasting(web, attachment.OrdinalOf(6))},
		"with the label":              {a.podOn(t, "shop", "web-5", by(web), m{"metadata.labels": m{"apps.kubernetes.io/pod-index": "5"}}), lasting(web, attachment.OrdinalOf(5))},
		"OpenKruise's of that name":   {a.podOn(t, "shop", "web-2", by(kruise)), lasting(kruise, attachment.OrdinalOf(2))},
		"a launcher":                  {dbLauncher, beside(lasting(db, 0), dbTarget)},
		"the target of its migration": {dbTarget, beside(lasting(db, 0), dbLauncher)},
		"mydb":                        {launcher(vmi(mydb)), lasting(mydb, 0)},
		"db in the bank":              {launcher(vmi(bankDB)), lasting(bankDB, 0)},
		"a.b":                         {launcher(abRun), lasting(ab, 0)},
		"a.c":                         {launcher(acRun), lasting(ac, 0)},
		"a VMI alone":                 {launcher(alone), lasting(alone, 0)},
		"a VMI whose VM is gone":      {launcher(orphan), lasting(orphan, 0)},
	} {
		got, err := o.Ask(t.Context(), question(test.pod))
		if err != nil || !cmp.Equal(got, test.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
	}
	for name, pod := range map[string]made{
		"a Deployment's":              a.podOn(t, "shop", "web-abc", m{"metadata.ownerReferences": []m{{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": zeroUID, "controller": true}}}),
		"of a set that was made anew": a.podOn(t, "shop", "web-0", by(stale)),
		"not controlled by it":        a.podOn(t, "shop", "web-1", notController),
		"a label of the template":     a.podOn(t, "shop", "web-7", by(web), m{"metadata.labels": m{"apps.kubernetes.io/pod-index": "0"}}),
		"a name of its own":           a.podOn(t, "shop", "web-first", by(web)),
		"a hostname of its own":       a.podOn(t, "shop", "named", m{"spec": m{"nodeName": "node1", "hostname": "web-5", "subdomain": "web", "containers": []m{{"name": "c", "image": "i"}}}}),
		"an attachment pod":           a.podOn(t, "shop", "hp-volume-abc", by(dbLauncher)),
		"of a VMI that is gone":       a.podOn(t, "shop", "virt-launcher-gone", by(made{"VirtualMachineInstance.kubevirt.io", "shop", "gone", zeroUID})),
		"a VM of another namespace":   a.podOn(t, "bank", "virt-launcher-mydb", by(made{"VirtualMachineInstance.kubevirt.io", "bank", "mydb", zeroUID})),
		"that claims to be a mirror":  a.podOn(t, "shop", "mirror", annotated("kubernetes.io/config.mirror", hash)),
		"on another node":             a.make(t, "Pod", "shop", "far", m{"spec": m{"nodeName": "node2", "containers": []m{{"name": "c", "image": "i"}}}}),
	} {
		if got, err := o.Ask(t.Context(), question(pod)); err != nil || !cmp.Equal(got, itself(pod)) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, itself(pod))
		}
	}
	unlisted := a.podOn(t, "shop", "virt-launcher-db-by-hand", by(dbRun))
	if got, err := o.Ask(t.Context(), question(unlisted)); !errors.Is(err, owner.ErrUnavailable) || !strings.Contains(err.Error(), "does not list the pod's UID "+string(unlisted.uid)+" in status.activePods") {
		t.Errorf("a pod that its VMI does not list: %+v, %v", got, err)
	}
	if got, err := o.Ask(t.Context(), question(a.listed(t, dbRun, unlisted))); err != nil || !cmp.Equal(got, beside(lasting(db, 0), dbLauncher, dbTarget)) {
		t.Errorf("a pod that its VMI lists by now: %+v, %v", got, err)
	}
	a.whoItIsByName(t, o, podDB)
}

// beside is the answer for a pod of a machine that runs in other pods, too.
func beside(a owner.Answer, pods ...made) owner.Answer {
	for _, pod := range pods {
		a.Siblings = append(a.Siblings, string(pod.uid))
	}
	slices.Sort(a.Siblings)
	return a
}

// whoItIsByName has pods that the API knows under another UID or none.
func (a *api) whoItIsByName(t *testing.T, o *kube.Owners, podDB made) {
	static := made{"Pod", "shop", "mirror", hash}
	want := owner.Answer{Owner: attachment.Owner{Kind: "pod", Namespace: "shop", Name: "mirror"}, Persistent: true, SinglePod: true}
	if got, err := o.Ask(t.Context(), question(static)); err != nil || !cmp.Equal(got, want) {
		t.Errorf("a static pod: %+v, %v, want %+v", got, err, want)
	}
	if got, err := o.Ask(t.Context(), question(made{"Pod", "shop", "mirror", ""})); err != nil || !cmp.Equal(got, want) {
		t.Errorf("a static pod of an old runtime: %+v, %v, want %+v", got, err, want)
	}
	if got, err := o.Ask(t.Context(), question(made{"Pod", "shop", "db", ""})); err != nil || !cmp.Equal(got, itself(podDB)) {
		t.Errorf("a pod of an old runtime: %+v, %v, want %+v", got, err, itself(podDB))
	}
	for name, pod := range map[string]made{"another UID": {"Pod", "shop", "db", zeroUID}, "no such pod": {"Pod", "shop", "none", zeroUID}} {
		if got, err := o.Ask(t.Context(), question(pod)); !errors.Is(err, owner.ErrUnavailable) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, test := range map[string]struct{ set, pod, position string }{"Kubernetes": {"StatefulSet.apps", "web-6", "1"}, "OpenKruise": {"StatefulSet.apps.kruise.io", "web-2", "1"}} {
		a.merge(t, fmt.Sprintf(collections["Pod"], "shop")+"/"+test.pod, m{"metadata": m{"annotations": m{"ipam.relink.dev/lan": "10.3.0.1, 10.3.0.2, 10.3.0.3"}}})
		var pod metav1.PartialObjectMetadata
		if err := json.Unmarshal(a.ask(t, http.MethodGet, fmt.Sprintf(collections["Pod"], "shop")+"/"+test.pod, "", nil), &pod); err != nil {
			t.Fatal(err)
		}
		await(t, 5*time.Second, "the annotation of "+name, func() bool {
			got, err := o.Ask(t.Context(), question(made{"Pod", "shop", test.pod, pod.UID}))
			return err == nil && got.Static != nil && got.Static.Replica != nil && fmt.Sprint(*got.Static.Replica) == test.position && len(got.Static.Addresses) == 3
		})
	}
}

func (a *api) claims(t *testing.T, o *kube.Owners) {
	full := a.make(t, "IPAMClaim.k8s.cni.cncf.io", "shop", "vm.full", m{"spec": m{"network": "lan", "interface": "lan0"}})
	ip := netip.MustParsePrefix("10.3.0.7/24")
	a.merge(t, full.path()+"/status", m{"status": m{"ips": []string{ip.String()}, "ownerPod": "x"}})
	empty := a.make(t, "IPAMClaim.k8s.cni.cncf.io", "shop", "vm.empty", m{"spec": m{"network": "lan", "interface": "lan0"}})
	vm := a.make(t, "VirtualMachine.kubevirt.io", "shop", "claims", nil)
	run := a.make(t, "VirtualMachineInstance.kubevirt.io", "shop", "claims", by(vm))
	pod := a.podOn(t, "shop", "claims", by(run), annotated("k8s.v1.cni.cncf.io/networks", `[{"name":"lan","interface":"pod1","ipam-claim-reference":"vm.full"},{"name":"lan","interface":"pod2","ipam-claim-reference":"vm.empty"},{"name":"lan","interface":"pod3","ipam-claim-reference":"vm.none"}]`))
	q := question(a.listed(t, run, pod))
	q.Claims = true
	claim := func(ifName string) (*owner.Claim, error) {
		q.IfName = ifName
		got, err := o.Ask(t.Context(), q)
		return got.Claim, err
	}
	if got, err := claim("pod1"); err != nil || got == nil || got.UID != string(full.uid) || !slices.Equal(got.IPs, []netip.Prefix{ip}) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err := claim("pod2")
	if err != nil || got == nil || got.UID != string(empty.uid) || got.IPs != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if got, err := claim("pod3"); !errors.Is(err, owner.ErrUnavailable) || !strings.Contains(err.Error(), `does not exist: ipamclaims.k8s.cni.cncf.io "vm.none" not found`) {
		t.Errorf("%+v, %v", got, err)
	}
	a.claimsOfOthers(t, o, run, vm)
	if got, err := claim("net9"); err != nil || got != nil {
		t.Errorf("%+v, %v", got, err)
	}
	f := owner.Fulfilment{Pod: q.Pod, Claim: *got, IPs: []netip.Prefix{ip}}
	for _, step := range []struct {
		name string
		ip   string
		uid  types.UID
		want error
	}{
		{"written", "10.3.0.7/24", empty.uid, nil}, {"again", "10.3.0.7/24", empty.uid, nil}, {"another address", "10.3.0.8/24", empty.uid, owner.ErrDiffers}, {"another claim", "10.3.0.7/24", zeroUID, owner.ErrDiffers},
	} {
		f.IPs, f.Claim.UID = []netip.Prefix{netip.MustParsePrefix(step.ip)}, string(step.uid)
		if err := o.Fulfil(t.Context(), f); !errors.Is(err, step.want) || (err == nil) != (step.want == nil) {
			t.Errorf("%s: %v, want %v", step.name, err, step.want)
		}
	}
	if text := string(a.ask(t, http.MethodGet, empty.path(), "", nil)); !strings.Contains(text, `"status":{"ips":["10.3.0.7/24"],"ownerPod":"claims"}`) {
		t.Error(text)
	}
	a.delete(t, empty)
	f.Claim.UID = string(empty.uid)
	if err := o.Fulfil(t.Context(), f); !errors.Is(err, owner.ErrUnavailable) {
		t.Error(err)
	}
	a.writersOfAClaim(t, o, q.Pod)
}

// claimsOfOthers are named by pods that they are not for.
func (a *api) claimsOfOthers(t *testing.T, o *kube.Owners, run, vm made) {
	spec := m{"spec": m{"network": "lan", "interface": "lan0"}}
	for name, machine := range map[string]made{"vm.mine": vm, "vm.run": run, "vm.other": a.make(t, "VirtualMachine.kubevirt.io", "shop", "claims-other", nil)} {
		a.make(t, "IPAMClaim.k8s.cni.cncf.io", "shop", name, with(spec, by(machine)))
	}
	names := annotated("k8s.v1.cni.cncf.io/networks", `[{"interface":"mine","ipam-claim-reference":"vm.mine"},{"interface":"run","ipam-claim-reference":"vm.run"},{"interface":"other","ipam-claim-reference":"vm.other"}]`)
	launcher, stranger := a.listed(t, run, a.podOn(t, "shop", "claims-launcher", by(run), names)), a.podOn(t, "shop", "claims-stranger", names)
	for _, test := range []struct {
		pod          made
		ifName, want string
	}{
		{launcher, "mine", ""}, {launcher, "run", ""}, {launcher, "other", `the pod's IPAMClaim vm.other belongs to the "VirtualMachine claims-other"`},
		{stranger, "mine", "the pod names the IPAMClaim vm.mine, and its addresses are those of pod shop/claims-stranger"},
	} {
		q := question(test.pod)
		q.IfName, q.Claims = test.ifName, true
		got, err := o.Ask(t.Context(), q)
		switch {
		case test.want == "" && (err != nil || got.Claim == nil || got.Claim.Name != "vm."+test.ifName):
			t.Errorf("%s of %s: %+v, %v", test.ifName, test.pod.name, got.Claim, err)
		case test.want != "" && (!errors.Is(err, owner.ErrInvalid) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s of %s: %v, want %q", test.ifName, test.pod.name, err, test.want)
		}
	}
}

// writersOfAClaim write different addresses at the same time. One of them wins, and the others hear of it.
func (a *api) writersOfAClaim(t *testing.T, o *kube.Owners, pod attachment.Pod) {
	claim := a.make(t, "IPAMClaim.k8s.cni.cncf.io", "shop", "vm.race", m{"spec": m{"network": "lan", "interface": "lan0"}})
	const writers = 8
	errs := make(chan error, writers)
	for i := range writers {
		go func() {
			ip := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 3, 1, byte(i)}), 24)
			errs <- o.Fulfil(t.Context(), owner.Fulfilment{Pod: pod, Claim: owner.Claim{Name: claim.name, UID: string(claim.uid)}, IPs: []netip.Prefix{ip}})
		}()
	}
	won := 0
	for range writers {
		switch err := <-errs; {
		case err == nil:
			won++
		case !errors.Is(err, owner.ErrDiffers):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d writers have won", won, writers)
	}
}

func (a *api) named(t *testing.T, o *kube.Owners) {
	set := a.setOf(t, "StatefulSet.apps", "shop", "named", m{"replicas": 1})
	a.make(t, "ConfigMap", "shop", "settings", nil)
	a.setOf(t, "StatefulSet.apps", "bank", "vault", m{"replicas": 1})
	pod := a.podOn(t, "shop", "named-pod", annotated("ipam.relink.dev/owner", "statefulset.apps/named"))
	want := lasting(set, 0)
	want.SinglePod = false
	if got, err := o.Ask(t.Context(), question(pod)); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for value, test := range map[string]struct {
		is   error
		want string
	}{
		"statefulset.apps/vault":        {owner.ErrInvalid, "It must be in the namespace shop"},
		"statefulset/named":             {owner.ErrInvalid, `no such kind in a namespace: statefulset of the group ""`},
		"thing.example.org/x":           {owner.ErrInvalid, "example.org: the Kubernetes API has no such kind"},
		"namespace/shop":                {owner.ErrInvalid, "no such kind in a namespace"},
		"virtualmachine.kubevirt.io/db": {owner.ErrInvalid, "those of its launcher pods"},
		"configmap/settings":            {owner.ErrUnavailable, `needs the rule {apiGroups: [""], resources: ["configmaps"], verbs: ["get"]}`},
	} {
		pod := a.podOn(t, "shop", fmt.Sprintf("named-%d", time.Now().UnixNano()), annotated("ipam.relink.dev/owner", value))
		if _, err := o.Ask(t.Context(), question(pod)); !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", value, err, test.want)
		}
	}
}
