package kube

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/relink-cni/relink/pkg/pool"
)

// An agent hears of what it acts on. Annotations of others and the status are nothing of that.
func TestWhatOfAPoolIsAChange(t *testing.T) {
	now := metav1.Now()
	base := metav1.ObjectMeta{Name: "lan", UID: "1", ResourceVersion: "10", Generation: 3, Annotations: map[string]string{"other": "a"}}
	for name, test := range map[string]struct {
		change func(*metav1.ObjectMeta)
		same   bool
	}{
		"a status, as only the version tells": {func(m *metav1.ObjectMeta) { m.ResourceVersion = "11" }, true},
		"nothing, told again":                 {func(*metav1.ObjectMeta) {}, true},
		"a finalizer":                         {func(m *metav1.ObjectMeta) { m.ResourceVersion, m.Finalizers = "11", []string{pool.Finalizer} }, true},
		"somebody's annotation":               {func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{"other": "b"} }, true},
		"the spec":                            {func(m *metav1.ObjectMeta) { m.ResourceVersion, m.Generation = "11", 4 }, false},
		"a recovery":                          {func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{pool.RecoveryKey: "{}"} }, false},
		"the end":                             {func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &now }, false},
		"another pool of the name":            {func(m *metav1.ObjectMeta) { m.UID = "2" }, false},
		"an API with an older state":          {func(m *metav1.ObjectMeta) { m.ResourceVersion = "9" }, false},
		"a version that is no number":         {func(m *metav1.ObjectMeta) { m.ResourceVersion = "x" }, false},
	} {
		is := *base.DeepCopy()
		test.change(&is)
		a, _ := trimPoolMetadata(&metav1.PartialObjectMetadata{ObjectMeta: base})
		b, _ := trimPoolMetadata(&metav1.PartialObjectMetadata{ObjectMeta: is})
		if got := samePoolSpec(a, b); got != test.same {
			t.Errorf("%s: same is %t", name, got)
		}
	}
	recovers := *base.DeepCopy()
	recovers.Annotations = map[string]string{pool.RecoveryKey: "{}"}
	a, _ := trimPoolMetadata(&metav1.PartialObjectMetadata{ObjectMeta: recovers})
	b, _ := trimPoolMetadata(&metav1.PartialObjectMetadata{ObjectMeta: base})
	if samePoolSpec(a, b) {
		t.Error("the end of a recovery is no change")
	}
	if samePoolSpec(a, time.Now()) {
		t.Error("something else is no change")
	}
}
