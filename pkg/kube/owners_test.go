package kube

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/owner"
)

const hash = "0123456789abcdef0123456789abcdef" // As the kubelet makes the UIDs of static pods.

// A static pod starts before the API, which it may be. Its owner is the same whether the API runs or not.
func TestAStaticPodNeedsNoAPI(t *testing.T) {
	o, w, _ := newOwners(t, "", map[string]string{podsPath + "proxy-node1": objectJSON(t, "proxy-node1", map[string]any{"metadata.annotations": map[string]string{"ipam.relink.dev/lan": "10.0.0.1"}})})
	pod := attachment.Pod{Namespace: "shop", Name: "proxy-node1", UID: hash}
	got, err := o.Ask(t.Context(), owner.Question{Pod: pod, Network: "lan", IfName: "eth0", Claims: true})
	if want := (owner.Answer{Owner: attachment.Owner{Kind: "pod", Namespace: "shop", Name: "proxy-node1"}, Persistent: true, SinglePod: true}); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	w.wants(t)
	for uid, want := range map[string]bool{
		hash: true, "": false, hash[1:]: false, hash + "0": false, "0123456789ABCDEF0123456789ABCDEF": false,
		"0123456789abcdeg0123456789abcdef": false, "01234567-89ab-cdef-0123-456789abcdef": false,
	} {
		if isStaticPodUID(uid) != want {
			t.Errorf("isHash(%q) = %v", uid, !want)
		}
	}
}

// Who the pod is comes from the API, and never from its name alone.
func TestWhichPod(t *testing.T) {
	mirror := map[string]any{"metadata.annotations": map[string]string{"kubernetes.io/config.mirror": "of-the-manifest", "ipam.relink.dev/lan": "10.0.0.1"}}
	byItself := attachment.Owner{Kind: "pod", Namespace: "shop", Name: "web", UID: "uid-of-web"}
	named := attachment.Owner{Kind: "pod", Namespace: "shop", Name: "web"}
	for name, test := range map[string]struct {
		uid  string
		more map[string]any
		want owner.Answer
		err  string
	}{
		"its UID":                    {"uid-of-web", nil, owner.Answer{Owner: byItself, SinglePod: true}, ""},
		"an old runtime":             {"", nil, owner.Answer{Owner: byItself, SinglePod: true}, ""},
		"a static pod's own UID":     {"of-the-manifest", mirror, owner.Answer{Owner: named, Persistent: true, SinglePod: true}, ""},
		"an old runtime, static":     {"", mirror, owner.Answer{Owner: named, Persistent: true, SinglePod: true}, ""},
		"another UID":                {"uid-before", nil, owner.Answer{}, "the pod shop/web with the UID uid-before is not in the API: the one of that name has the UID uid-of-web"},
		"another UID, and a mirror":  {"uid-before", mirror, owner.Answer{}, "is not in the API"},
		"the UID of a mirror itself": {"uid-of-web", map[string]any{"metadata.annotations": map[string]string{"kubernetes.io/config.mirror": hash}}, owner.Answer{Owner: byItself, SinglePod: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, _, _ := newOwners(t, "", map[string]string{podsPath + "web": objectJSON(t, "web", test.more)})
			got, err := o.Ask(t.Context(), owner.Question{Pod: attachment.Pod{Namespace: "shop", Name: "web", UID: test.uid}, Network: "lan", IfName: "eth0"})
			switch {
			case test.err != "":
				if !errors.Is(err, owner.ErrUnavailable) || !strings.Contains(err.Error(), test.err) {
					t.Errorf("%v, want %q", err, test.err)
				}
			case err != nil || !cmp.Equal(got, test.want):
				t.Errorf("%+v, %v, want %+v", got, err, test.want)
			}
		})
	}
	o, w, _ := newOwners(t, "", nil)
	if _, err := o.Ask(t.Context(), ask("web")); !errors.Is(err, owner.ErrUnavailable) || !strings.Contains(err.Error(), `the pod shop/web: the Kubernetes API answers that it does not exist: pods "web" not found`) {
		t.Error(err)
	}
	w.requestPaths()
	if _, err := o.Ask(t.Context(), owner.Question{Pod: attachment.Pod{Namespace: "shop", Name: "../web"}}); !errors.Is(err, owner.ErrInvalid) {
		t.Error(err)
	}
	w.wants(t)
}

// Each object is asked for once while the pod lives. A reference that does not count is looked at again.
func TestAnOwnerIsFoundOnce(t *testing.T) {
	vmi, vm := kubevirt+"virtualmachineinstances/db", kubevirt+"virtualmachines/db"
	o, w, log := newOwners(t, "", map[string]string{
		podsPath + "launcher": objectJSON(t, "launcher", controlled("kubevirt.io/v1", "VirtualMachineInstance", "db")),
		vmi:                   running(t, "db", "db", "launcher"), vm: objectJSON(t, "db", nil),
	})
	want := owner.Answer{Owner: attachment.Owner{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "shop", Name: "db", UID: "uid-of-db"}, Persistent: true, SinglePod: true}
	gets := func(vm string, paths ...string) {
		t.Helper()
		if got, err := o.Ask(t.Context(), ask("launcher")); err != nil || got.Owner.Name != vm {
			t.Errorf("%+v, %v, want %s", got, err, vm)
		}
		w.wants(t, append([]string{"GET " + podsPath + "launcher"}, paths...)...)
	}
	if got, err := o.Ask(t.Context(), ask("launcher")); err != nil || !cmp.Equal(got, want) {
		t.Errorf("%+v, %v, want %+v\n%s", got, err, want, log)
	}
	w.wants(t, "GET "+podsPath+"launcher", "GET "+vmi, "GET "+vm)
	gets("db")
	// A controller takes the pod over.
	w.set(podsPath+"launcher", objectJSON(t, "launcher", controlled("kubevirt.io/v1", "VirtualMachineInstance", "other")))
	other := kubevirt + "virtualmachineinstances/other"
	gets("launcher", "GET "+other)
	gets("launcher", "GET "+other)
	w.set(other, running(t, "other", "", "launcher"))
	gets("other", "GET "+other)
	gets("other")
}

// Anybody who may make a pod may write a reference into it. virt-controller lists a launcher a moment after it has made it. So
// the answer is not kept.
func TestAPodThatItsVirtualMachineInstanceDoesNotList(t *testing.T) {
	vmi, vm := kubevirt+"virtualmachineinstances/db", kubevirt+"virtualmachines/db"
	o, w, _ := newOwners(t, "", map[string]string{
		podsPath + "evil": objectJSON(t, "evil", controlled("kubevirt.io/v1", "VirtualMachineInstance", "db")), vm: objectJSON(t, "db", nil),
	})
	const want = "the VirtualMachineInstance db, which controls the pod shop/evil, does not list the pod's UID uid-of-evil in status.activePods"
	for what, run := range map[string]string{
		"a list with another pod": running(t, "db", "db", "launcher"), "an empty list": running(t, "db", "db"),
		"no list": objectJSON(t, "db", map[string]any{"status": map[string]any{"phase": "Scheduling"}}), "no status": objectJSON(t, "db", nil),
	} {
		w.set(vmi, run)
		if got, err := o.Ask(t.Context(), ask("evil")); !errors.Is(err, owner.ErrUnavailable) || !strings.Contains(err.Error(), want) || !cmp.Equal(got, owner.Answer{}) {
			t.Errorf("%s: %+v, %v, want %q", what, got, err, want)
		}
		w.wants(t, "GET "+podsPath+"evil", "GET "+vmi)
	}
	w.set(vmi, objectJSON(t, "db", map[string]any{"status": map[string]any{"activePods": []string{"uid-of-evil"}}}))
	if got, err := o.Ask(t.Context(), ask("evil")); !errors.Is(err, owner.ErrUnavailable) || !strings.Contains(err.Error(), "its status cannot be read") {
		t.Errorf("a list of another form: %+v, %v", got, err)
	}
	w.set(vmi, running(t, "db", "db", "launcher", "evil"))
	if got, err := o.Ask(t.Context(), ask("evil")); err != nil || got.Owner.Kind != "VirtualMachine" {
		t.Errorf("virt-controller lists it: %+v, %v", got, err)
	}
}

// A reference does not count if another object has its name by now.
func TestAReferenceToAnObjectThatWasMadeAnew(t *testing.T) {
	anew := map[string]any{"metadata.uid": "made-anew"}
	o, _, _ := newOwners(t, "", map[string]string{
		podsPath + "web-0":    objectJSON(t, "web-0", controlled("apps/v1", "StatefulSet", "web")),
		podsPath + "launcher": objectJSON(t, "launcher", controlled("kubevirt.io/v1", "VirtualMachineInstance", "db")),
		setsPath + "web":      objectJSON(t, "web", anew), kubevirt + "virtualmachines/db": objectJSON(t, "db", anew),
		kubevirt + "virtualmachineinstances/db": running(t, "db", "db", "launcher"),
	})
	for pod, kind := range map[string]string{"web-0": "pod", "launcher": "VirtualMachineInstance"} {
		if got, err := o.Ask(t.Context(), ask(pod)); err != nil || got.Owner.Kind != kind {
			t.Errorf("%s: %+v, %v, want a %s", pod, got, err, kind)
		}
	}
}

// Anything but a proof that the owner does not exist leaves the question open.
func TestTheAPIFails(t *testing.T) {
	pod := map[string]string{podsPath + "web-0": objectJSON(t, "web-0", controlled("apps/v1", "StatefulSet", "web"))}
	status := func(code int) func(http.ResponseWriter, *http.Request) {
		return func(to http.ResponseWriter, _ *http.Request) { refuse(to, code) }
	}
	for name, test := range map[string]struct {
		odd  func(http.ResponseWriter, *http.Request)
		want string
	}{
		"refused":        {status(403), `needs the rule {apiGroups: ["apps"], resources: ["statefulsets"], verbs: ["get"]}`},
		"no credentials": {status(401), "no, because 401 (status 401)"},
		"broken":         {status(500), "no, because 500 (status 500)"},
		"busy":           {status(429), "no, because 429 (status 429)"},
		"no such kind":   {http.NotFound, "does not serve it: /apis/apps/v1 has no statefulsets"},
		"hangs":          {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "the Kubernetes API is slow: the next try goes on with this one"},
		"breaks off":     {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "the Kubernetes API does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, w, _ := newOwners(t, "", pod)
			w.answers(func(to http.ResponseWriter, r *http.Request) bool {
				if is := strings.HasPrefix(r.URL.Path, setsPath); !is {
					return false
				}
				test.odd(to, r)
				return true
			})
			began := time.Now()
			got, err := o.Ask(t.Context(), ask("web-0"))
			if !errors.Is(err, owner.ErrUnavailable) || errors.Is(err, owner.ErrInvalid) || !strings.Contains(err.Error(), test.want) ||
				name != "hangs" && !strings.Contains(err.Error(), "the StatefulSet web, which controls the pod shop/web-0: ") {
				t.Errorf("%+v, %v, want %q", got, err, test.want)
			}
			if took := time.Since(began); took >= objects.Limit { // Whoever waits for the request waits that long.
				t.Errorf("the answer took %s", took)
			}
		})
	}
}

// Each answer takes longer than an ADD waits. The runtime's next try comes later than the answer, and has it.
func TestTheNextTryHasTheAnswerOfASlowAPI(t *testing.T) {
	t.Parallel()
	o, w, _ := newOwners(t, "", map[string]string{podsPath + "web": objectJSON(t, "web", nil)})
	w.answers(func(http.ResponseWriter, *http.Request) bool {
		time.Sleep(owner.AskTimeout + 500*time.Millisecond)
		return false
	})
	if got, err := o.Ask(t.Context(), ask("web")); !errors.Is(err, owner.ErrUnavailable) {
		t.Fatalf("the first try: %+v, %v", got, err)
	}
	time.Sleep(owner.AskTimeout)
	if got, err := o.Ask(t.Context(), ask("web")); err != nil || got.Owner.Name != "web" {
		t.Errorf("the next try: %+v, %v", got, err)
	}
	if got, err := o.Ask(t.Context(), ask("web")); !errors.Is(err, owner.ErrUnavailable) {
		t.Errorf("the answer is given twice: %+v, %v", got, err)
	}
}

// The API's authorizer hears of a node's new pod a moment after the kubelet.
func TestARefusalThatDoesNotStay(t *testing.T) {
	for refusals, want := range map[int]error{0: nil, 1: nil, maxTries - 1: nil, maxTries: owner.ErrUnavailable} {
		o, w, _ := newOwners(t, "", map[string]string{podsPath + "web": objectJSON(t, "web", nil)})
		tries := 0
		w.answers(func(to http.ResponseWriter, _ *http.Request) bool {
			if tries++; tries > refusals {
				return false
			}
			refuse(to, http.StatusForbidden)
			return true
		})
		if got, err := o.Ask(t.Context(), ask("web")); !errors.Is(err, want) || (err == nil) != (want == nil) || tries != min(refusals+1, maxTries) {
			t.Errorf("%d refusals: %+v, %v after %d tries", refusals, got, err, tries)
		}
	}
}

func TestStaticAddressesOfReplicas(t *testing.T) {
	pod := controlled("apps/v1", "StatefulSet", "web")
	pod["metadata.annotations"] = map[string]string{"ipam.relink.dev/lan": "10.0.0.1,10.0.0.2,10.0.0.3"}
	o, w, _ := newOwners(t, "", map[string]string{
		podsPath + "web-6": objectJSON(t, "web-6", pod),
		setsPath + "web":   objectJSON(t, "web", map[string]any{"spec": map[string]any{"replicas": 3, "ordinals": map[string]int{"start": 5}}}),
	})
	got, err := o.Ask(t.Context(), ask("web-6"))
	if number, _ := got.Owner.Ordinal.Number(); err != nil || number != 6 || got.Static == nil || got.Static.Replica == nil || *got.Static.Replica != 1 || !slices.Equal(got.Static.Addresses, addrs("10.0.0.1", "10.0.0.2", "10.0.0.3")) {
		t.Errorf("%+v, %+v, %v", got, got.Static, err)
	}
	// All pods count by the set as it is now, and not by what it was when a pod was seen first.
	w.set(setsPath+"web", objectJSON(t, "web", map[string]any{"spec": map[string]any{"replicas": 3, "ordinals": map[string]int{"start": 6}}}))
	w.set(podsPath+"web-7", objectJSON(t, "web-7", pod))
	for name, want := range map[string]int{"web-6": 0, "web-7": 1} {
		if again, err := o.Ask(t.Context(), ask(name)); err != nil || again.Static.Replica == nil || *again.Static.Replica != want {
			t.Errorf("%s: %+v, %v, want replica %d", name, again.Static, err, want)
		}
	}
	w.set(setsPath+"web", objectJSON(t, "web", map[string]any{"spec": map[string]any{"replicas": 3, "ordinals": map[string]int{"start": 7}}}))
	want := "which of the addresses the pod gets is not known: the StatefulSet shop/web: its ordinals begin with 7"
	if got, err := o.Ask(t.Context(), ask("web-6")); !errors.Is(err, owner.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("%+v, %v, want %q", got, err, want)
	}
	// Without ordinals the pod takes any of them.
	w.set(podsPath+"a", objectJSON(t, "a", map[string]any{"metadata.annotations": pod["metadata.annotations"]}))
	if got, err := o.Ask(t.Context(), ask("a")); err != nil || got.Static == nil || got.Static.Replica != nil {
		t.Errorf("%+v, %v", got.Static, err)
	}
}

func TestNamedOwners(t *testing.T) {
	const group, list = `{"versions":[{"version":"v1beta1"},{"version":"v1"}],"preferredVersion":{"version":"v1"}}`,
		`{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true},{"name":"deployments/scale","kind":"Scale","namespaced":true},{"name":"nodes","kind":"Node"},{"name":"as","kind":"Twin","namespaced":true},{"name":"bs","kind":"twin","namespaced":true}]}`
	const old, web = `{"resources":[{"name":"olds","kind":"Old","namespaced":true}]}`, "/apis/apps/v1/namespaces/shop/deployments/web"
	for value, test := range map[string]struct {
		want attachment.Owner
		is   error
		err  string
	}{
		"deployment.apps/web":           {attachment.Owner{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "uid-of-web"}, nil, ""},
		"Deployment.apps/web":           {attachment.Owner{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "uid-of-web"}, nil, ""},
		"configmap/c.d":                 {attachment.Owner{Kind: "ConfigMap", Namespace: "shop", Name: "c.d", UID: "uid-of-c.d"}, nil, ""},
		"old.apps/o":                    {attachment.Owner{Group: "apps", Kind: "Old", Namespace: "shop", Name: "o", UID: "uid-of-o"}, nil, ""},
		"deployment.apps/none":          {attachment.Owner{}, owner.ErrInvalid, "It must be in the namespace shop: make it first"},
		"deployments.apps/web":          {attachment.Owner{}, owner.ErrInvalid, `no such kind in a namespace: deployments of the group "apps"`},
		"scale.apps/web":                {attachment.Owner{}, owner.ErrInvalid, "no such kind in a namespace"},
		"node.apps/n":                   {attachment.Owner{}, owner.ErrInvalid, "no such kind in a namespace"},
		"twin.apps/n":                   {attachment.Owner{}, owner.ErrInvalid, "no such kind in a namespace"},
		"a.example.org/n":               {attachment.Owner{}, owner.ErrInvalid, "example.org: the Kubernetes API has no such kind in a namespace: name another one"},
		"virtualmachine.kubevirt.io/db": {attachment.Owner{}, owner.ErrInvalid, "the addresses of a virtual machine are those of its launcher pods"},
		"":                              {attachment.Owner{}, owner.ErrInvalid, "write KIND.GROUP/NAME"},
		"web":                           {attachment.Owner{}, owner.ErrInvalid, "write KIND.GROUP/NAME"},
		"apps/v1/Deployment/w":          {attachment.Owner{}, owner.ErrInvalid, "write KIND.GROUP/NAME"},
		"deployment.apps/":              {attachment.Owner{}, owner.ErrInvalid, "write KIND.GROUP/NAME"},
		"deployment.apps/../x":          {attachment.Owner{}, owner.ErrInvalid, "write KIND.GROUP/NAME"},
		"deployment./web":               {attachment.Owner{}, owner.ErrInvalid, "write KIND.GROUP/NAME"},
		"secret.refused/x":              {attachment.Owner{}, owner.ErrUnavailable, `needs the rule {nonResourceURLs: ["/apis/refused"], verbs: ["get"]}`},
		"secret/x":                      {attachment.Owner{}, owner.ErrUnavailable, `needs the rule {apiGroups: [""], resources: ["secrets"], verbs: ["get"]}`},
	} {
		t.Run(value, func(t *testing.T) {
			o, w, _ := newOwners(t, "", map[string]string{
				podsPath + "x": objectJSON(t, "x", map[string]any{"metadata.annotations": map[string]string{"ipam.relink.dev/owner": value}}),
				"/apis/apps":   group, "/apis/apps/v1": list, "/apis/apps/v1beta1": old, web: objectJSON(t, "web", nil),
				"/apis/kubevirt.io": group, "/apis/kubevirt.io/v1": `{"resources":[{"name":"virtualmachines","kind":"VirtualMachine","namespaced":true}]}`,
				"/apis/apps/v1beta1/namespaces/shop/olds/o": objectJSON(t, "o", nil),
				"/api/v1":                                `{"resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true},{"name":"secrets","kind":"Secret","namespaced":true}]}`,
				"/api/v1/namespaces/shop/configmaps/c.d": objectJSON(t, "c.d", nil),
			})
			w.answers(func(to http.ResponseWriter, r *http.Request) bool {
				switch r.URL.Path {
				case "/apis/refused", "/api/v1/namespaces/shop/secrets/x":
					refuse(to, http.StatusForbidden)
				case "/apis/example.org":
					http.NotFound(to, r)
				default:
					return false
				}
				return true
			})
			got, err := o.Ask(t.Context(), ask("x"))
			if test.is != nil {
				if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.err) {
					t.Errorf("%v, want %q", err, test.err)
				}
				if errors.Is(test.is, owner.ErrInvalid) && !strings.Contains(err.Error(), "the pod's annotation ipam.relink.dev/owner=") {
					t.Errorf("the error does not name the key: %v", err)
				}
				return
			}
			if want := (owner.Answer{Owner: test.want, Persistent: true}); err != nil || !cmp.Equal(got, want) {
				t.Errorf("%+v, %v, want %+v", got, err, want)
			}
			w.requestPaths()
			if again, err := o.Ask(t.Context(), ask("x")); err != nil || !cmp.Equal(again, got) {
				t.Errorf("again: %+v, %v", again, err)
			}
			w.wants(t, "GET "+podsPath+"x")
		})
	}
}
