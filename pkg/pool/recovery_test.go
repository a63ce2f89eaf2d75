package pool

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
