package kube

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
)

func TestClaims(t *testing.T) {
	annotated := func(name string) map[string]any {
		pod := controlled("kubevirt.io/v1", "VirtualMachineInstance", "run")
		pod["metadata.annotations"] = map[string]string{networksKey: `[{"name":"lan","interface":"pod1","ipam-claim-reference":"` + name + `"}]`}
		return pod
	}
	of := func(references ...any) map[string]any { return map[string]any{"metadata.ownerReferences": references} }
	plain := &owner.Claim{Name: "db.lan", UID: "uid-of-db.lan"}
	claim := func(network string, ips ...string) map[string]any {
		return map[string]any{"spec": map[string]string{"network": network, "interface": "in-the-vm"}, "status": map[string]any{"ips": ips}}
	}
	for name, test := range map[string]struct {
		reference string
		claim     map[string]any
		want      *owner.Claim
		is        error
		err       string
	}{
		"none":                 {"", nil, nil, nil, ""},
		"with addresses":       {"db.lan", claim("lan", "10.3.0.7/24", "fd00::7/64"), &owner.Claim{Name: "db.lan", UID: "uid-of-db.lan", IPs: prefixes("10.3.0.7/24", "fd00::7/64")}, nil, ""},
		"without":              {"db.lan", claim("lan"), &owner.Claim{Name: "db.lan", UID: "uid-of-db.lan"}, nil, ""},
		"nothing in it":        {"db.lan", map[string]any{}, &owner.Claim{Name: "db.lan", UID: "uid-of-db.lan"}, nil, ""},
		"of no network":        {"db.lan", claim(""), &owner.Claim{Name: "db.lan", UID: "uid-of-db.lan"}, nil, ""},
		"of another network":   {"db.lan", claim("wan"), nil, owner.ErrInvalid, `the pod's IPAMClaim db.lan has spec.network="wan", and the interface is on the network lan`},
		"an address is wrong":  {"db.lan", claim("lan", "10.3.0.7"), nil, owner.ErrInvalid, `the IPAMClaim db.lan has "10.3.0.7" in status.ips`},
		"of the machine":       {"db.lan", of(by("kubevirt.io/v1", "VirtualMachine", "db")), plain, nil, ""},
		"of the run":           {"db.lan", of(by("kubevirt.io/v1", "VirtualMachineInstance", "run")), plain, nil, ""},
		"of both":              {"db.lan", of(by("kubevirt.io/v1", "VirtualMachine", "other"), by("kubevirt.io/v1", "VirtualMachine", "db")), plain, nil, ""},
		"of something else":    {"db.lan", of(by("v1", "ConfigMap", "x"), by("a/b/c", "VirtualMachine", "x")), plain, nil, ""},
		"of another machine":   {"db.lan", of(by("v1", "ConfigMap", "db"), by("kubevirt.io/v1", "VirtualMachine", "other")), nil, owner.ErrInvalid, `the pod's IPAMClaim db.lan belongs to the "VirtualMachine other" with the UID "uid-of-other", and the pod runs for VirtualMachine shop/db with the UID uid-of-db`},
		"of another run":       {"db.lan", of(by("kubevirt.io/v1alpha3", "VirtualMachineInstance", "other")), nil, owner.ErrInvalid, `the pod's IPAMClaim db.lan belongs to the "VirtualMachineInstance other"`},
		"KubeVirt is not done": {"db.lan", nil, nil, owner.ErrUnavailable, "the pod's IPAMClaim db.lan: the Kubernetes API answers that it does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			o, w, _ := newOwners(t, "", map[string]string{
				podsPath + "x":                           objectJSON(t, "x", annotated(test.reference)),
				kubevirt + "virtualmachineinstances/run": running(t, "run", "db", "x"), kubevirt + "virtualmachines/db": objectJSON(t, "db", nil),
			})
			if test.claim != nil {
				w.set(claimsAt+"db.lan", objectJSON(t, "db.lan", test.claim))
			}
			q := ask("x")
			q.IfName, q.Claims = "pod1", true
			got, err := o.Ask(t.Context(), q)
			switch {
			case test.is != nil:
				if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.err) {
					t.Errorf("%v, want %q", err, test.err)
				}
			case err != nil, (got.Claim == nil) != (test.want == nil):
				t.Errorf("%+v, %v", got.Claim, err)
			case got.Claim != nil && (got.Claim.Name != test.want.Name || got.Claim.UID != test.want.UID || !slices.Equal(got.Claim.IPs, test.want.IPs)):
				t.Errorf("%+v, want %+v", got.Claim, test.want)
			}
			w.requestPaths()
			q.Claims = false
			if got, err := o.Ask(t.Context(), q); err != nil || got.Claim != nil {
				t.Errorf("nobody asked for it: %+v, %v", got.Claim, err)
			}
			w.wants(t, "GET "+podsPath+"x")
		})
	}
}

// Anybody may write the name of a claim into a pod. Only a launcher gets its addresses.
func TestAClaimOfAPodThatIsNoLauncher(t *testing.T) {
	annotations := map[string]string{networksKey: `[{"interface":"pod1","ipam-claim-reference":"db.lan"}]`}
	named := map[string]string{networksKey: annotations[networksKey], ownerKey: "configmap/settings"}
	annotated := func(pod map[string]any, with map[string]string) map[string]any {
		pod["metadata.annotations"] = with
		return pod
	}
	o, w, _ := newOwners(t, "", map[string]string{
		podsPath + "x":     objectJSON(t, "x", annotated(map[string]any{}, annotations)),
		podsPath + "web-0": objectJSON(t, "web-0", annotated(controlled("apps/v1", "StatefulSet", "web"), annotations)), setsPath + "web": objectJSON(t, "web", nil),
		podsPath + "named": objectJSON(t, "named", annotated(map[string]any{}, named)), "/api/v1": `{"resources":[{"name":"configmaps","kind":"ConfigMap","namespaced":true}]}`,
		"/api/v1/namespaces/shop/configmaps/settings": objectJSON(t, "settings", nil),
		podsPath + "gone":   objectJSON(t, "gone", annotated(controlled("kubevirt.io/v1", "VirtualMachineInstance", "none"), annotations)),
		claimsAt + "db.lan": objectJSON(t, "db.lan", map[string]any{"status": map[string]any{"ips": []string{"10.3.0.7/24"}}}),
	})
	for pod, who := range map[string]string{"x": "pod shop/x", "web-0": "StatefulSet shop/web, ordinal 0", "named": "ConfigMap shop/settings", "gone": "pod shop/gone"} {
		q := ask(pod)
		q.IfName, q.Claims = "pod1", true
		want := "the pod names the IPAMClaim db.lan, and its addresses are those of " + who + ": only a launcher of a virtual machine has IPAMClaims"
		if got, err := o.Ask(t.Context(), q); !errors.Is(err, owner.ErrInvalid) || !strings.Contains(err.Error(), want) || got.Claim != nil {
			t.Errorf("%s: %+v, %v, want %q", pod, got.Claim, err, want)
		}
		if asked := w.requestPaths(); slices.Contains(asked, "GET "+claimsAt+"db.lan") {
			t.Errorf("%s: requests %q", pod, asked)
		}
	}
}

// Nothing is overwritten: who changes the claim between the reading and the writing is heard.
func TestFulfilDecidesAgain(t *testing.T) {
	f := owner.Fulfilment{Pod: attachment.Pod{Namespace: "shop", Name: "x"}, Claim: owner.Claim{Name: "db.lan", UID: "uid-of-db.lan"}, IPs: prefixes("10.3.0.7/24")}
	for name, test := range map[string]struct {
		conflicts int64
		// then are the addresses that somebody else has written meanwhile.
		then    []string
		patches int64
		is      error
		err     string
	}{
		"at once":                      {0, nil, 1, nil, ""},
		"after a change of the rest":   {2, nil, 3, nil, ""},
		"somebody wrote the same":      {1, []string{"10.3.0.7/24"}, 1, nil, ""},
		"somebody wrote another":       {1, []string{"10.3.0.8/24"}, 1, owner.ErrDiffers, "has [10.3.0.8/24], and the pod got [10.3.0.7/24]"},
		"somebody changes it for ever": {99, nil, maxTries, owner.ErrUnavailable, "somebody has changed it meanwhile: no, because 409"},
	} {
		t.Run(name, func(t *testing.T) {
			o, w, _ := newOwners(t, "", map[string]string{claimsAt + "db.lan": objectJSON(t, "db.lan", nil)})
			var patches atomic.Int64
			w.answers(func(to http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPatch {
					return false
				}
				var change struct {
					Metadata struct{ UID, ResourceVersion string }
					Status   struct {
						IPs      []string
						OwnerPod string
					}
				}
				body, _ := io.ReadAll(r.Body)
				if err := json.Unmarshal(body, &change); err != nil || r.URL.Path != claimsAt+"db.lan/status" || r.Header.Get("Content-Type") != "application/merge-patch+json" ||
					change.Metadata.UID != "uid-of-db.lan" || change.Metadata.ResourceVersion != "7" || !slices.Equal(change.Status.IPs, []string{"10.3.0.7/24"}) || change.Status.OwnerPod != "x" {
					t.Errorf("%s %s: %v", r.URL, body, err)
				}
				if patches.Add(1) > test.conflicts {
					_, _ = io.WriteString(to, "{}")
					return true
				}
				if test.then != nil {
					w.set(claimsAt+"db.lan", objectJSON(t, "db.lan", map[string]any{"status": map[string]any{"ips": test.then}}))
				}
				refuse(to, http.StatusConflict)
				return true
			})
			err := o.Fulfil(t.Context(), f)
			if !errors.Is(err, test.is) || (err == nil) != (test.is == nil) || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v, want %v with %q", err, test.is, test.err)
			}
			if n := patches.Load(); n != test.patches {
				t.Errorf("%d patches, want %d", n, test.patches)
			}
		})
	}
}

func TestFulfilIsRefused(t *testing.T) {
	f := owner.Fulfilment{Pod: attachment.Pod{Namespace: "shop", Name: "x"}, Claim: owner.Claim{Name: "db.lan", UID: "uid-of-db.lan"}, IPs: prefixes("10.3.0.7/24")}
	o, w, _ := newOwners(t, "", nil)
	if err := o.Fulfil(t.Context(), f); !errors.Is(err, owner.ErrUnavailable) || !strings.Contains(err.Error(), "the IPAMClaim db.lan: the Kubernetes API answers that it does not exist") {
		t.Error(err)
	}
	w.set(claimsAt+"db.lan", objectJSON(t, "db.lan", nil))
	w.answers(func(to http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch {
			return false
		}
		refuse(to, http.StatusForbidden)
		return true
	})
	want := `write the addresses into the IPAMClaim db.lan: the Kubernetes API refuses: no, because 403 (status 403). This account needs the rule {apiGroups: ["k8s.cni.cncf.io"], resources: ["ipamclaims/status"], verbs: ["patch"]}`
	if err := o.Fulfil(t.Context(), f); !errors.Is(err, owner.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
