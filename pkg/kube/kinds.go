package kube

import (
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube/objects"
)

var (
	pods       = objects.Kind{Name: attachment.OwnerPod, Resource: "pods", Versions: []string{"v1"}, Accept: objects.Whole}
	namespaces = objects.Kind{Name: "Namespace", Resource: "namespaces", Versions: []string{"v1"}, Accept: objects.MetadataOnly}
	sets       = objects.Kind{Group: "apps", Name: "StatefulSet", Resource: "statefulsets", Versions: []string{"v1"}, Accept: objects.Whole}
	kruises    = objects.Kind{Group: "apps.kruise.io", Name: "StatefulSet", Resource: "statefulsets", Versions: []string{"v1beta1", "v1alpha1"}, Accept: objects.Whole}
	machines   = objects.Kind{Group: "kubevirt.io", Name: "VirtualMachine", Resource: "virtualmachines", Versions: []string{"v1"}, Accept: objects.MetadataOnly}
	instances  = objects.Kind{Group: "kubevirt.io", Name: "VirtualMachineInstance", Resource: "virtualmachineinstances", Versions: []string{"v1"}, Accept: objects.Whole}
	claims     = objects.Kind{Group: "k8s.cni.cncf.io", Name: "IPAMClaim", Resource: "ipamclaims", Versions: []string{"v1alpha1"}, Accept: objects.Whole}
)

// metadataOf is the kind, if only the metadata count.
func metadataOf(k objects.Kind) objects.Kind {
	k.Accept = objects.MetadataOnly
	return k
}

// knownKinds are the kinds that an owner has if the pod does not name another one.
var knownKinds = []objects.Kind{pods, sets, kruises, machines, metadataOf(instances)}
