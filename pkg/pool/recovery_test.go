package pool

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecoveryIsAnAnnotation(t *testing.T) {
	p := Pool{Metadata: Meta{Annotations: map[string]string{"other": "x"}}}
	if r := p.Recovery(); r != nil {
		t.Errorf("Recovery() = %+v, want none", r)
	}
	want := Recovery{Since: "2026-01-01T00:00:00Z", Reason: "node a: it is gone", Asserted: []string{"a"}}
	with := p.WithRecovery(&want)
	if diff := cmp.Diff(&want, with.Recovery()); diff != "" || with.Metadata.Annotations["other"] != "x" {
		t.Errorf("Recovery() (-want +got):\n%s%v", diff, with.Metadata.Annotations)
	}
	if _, is := p.Metadata.Annotations[RecoveryKey]; is {
		t.Error("WithRecovery has changed the pool that it was called for")
	}
	if ended := with.WithRecovery(nil); ended.Recovery() != nil || len(ended.Metadata.Annotations) != 1 {
		t.Errorf("after the end there is %v", ended.Metadata.Annotations)
	}
	p.Metadata.Annotations[RecoveryKey] = "{"
	if r := p.Recovery(); r == nil || !strings.Contains(r.Reason, "remove it when all nodes have what they need") {
		t.Errorf("Recovery() of an annotation that nobody can read = %+v", r)
	}
}

func TestEachNodeAssertsOnce(t *testing.T) {
	r := Recovery{Asserted: make([]string, 1, 2)}
	r.Asserted[0] = "a"
	next, changed := r.WithAsserted("b")
	if !changed || cmp.Diff([]string{"a", "b"}, next.Asserted) != "" || len(r.Asserted) != 1 {
		t.Errorf("Asserts(b) = %v, %t of %v", next.Asserted, changed, r.Asserted)
	}
	other, _ := r.WithAsserted("c")
	if next.Asserted[1] != "b" || other.Asserted[1] != "c" {
		t.Errorf("two nodes write over each other: %v, %v", next.Asserted, other.Asserted)
	}
	if again, changed := next.WithAsserted("a"); changed || len(again.Asserted) != 2 {
		t.Errorf("Asserts(a) = %v, %t: it has asserted before", again.Asserted, changed)
	}
}
