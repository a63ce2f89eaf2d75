package cluster

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// What the agent has to do with an API. All share one, because its start takes seconds of processor time.
func TestAgent(t *testing.T) {
	fresh.Run(t, "", "ip link set lo up")
	a := startAPI(t)
	a.deploy(t)
	for _, name := range []string{"shop", "bank"} {
		a.create(t, "/api/v1/namespaces", m{"metadata": m{"name": name}}, &struct{}{})
	}
	t.Run("events", a.onPods)
	a.empty()
	a.definitions(t)
	t.Run("owners", a.ofPods)
	a.empty()
	a.definitions(t)
	t.Run("what becomes of addresses", a.whatBecomesOfAddresses) // The API is away afterwards.
}

// empty deletes all that was made in the namespaces.
func (a *api) empty() {
	for _, path := range collections {
		for _, namespace := range []string{"shop", "bank"} {
			a.try(http.MethodDelete, fmt.Sprintf(path, namespace)+"?gracePeriodSeconds=0", "", nil) // A kind may have no definition.
		}
	}
}

// definitions makes the kinds that owners can have, unless they are there.
func (a *api) definitions(t *testing.T) {
	t.Helper()
	loose := m{"type": "string"}
	a.definition(t, "kubevirt.io", "VirtualMachine", "virtualmachines", []string{"v1"}, nil)
	a.definition(t, "kubevirt.io", "VirtualMachineInstance", "virtualmachineinstances", []string{"v1"}, nil)
	a.definition(t, "apps.kruise.io", "StatefulSet", "statefulsets", []string{"v1beta1"}, nil)
	a.definition(t, "k8s.cni.cncf.io", "IPAMClaim", "ipamclaims", []string{"v1alpha1"}, m{ // As its own definition has it.
		"type": "object", "required": []string{"ips", "ownerPod"},
		"properties": m{"ownerPod": loose, "ips": m{"type": "array", "maxItems": 2, "items": loose}, "conditions": m{"type": "array", "items": m{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
	})
}
