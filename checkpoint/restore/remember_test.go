package restore

import (
	"testing"

	"github.com/relink-cni/relink/pkg/netstate"
)

// The operator says that a NIC stands in for a bond that is gone. The record that is
// kept of that is one by which the next run, told nothing, finds the NIC.
func TestAStandInOfAnotherKindIsFoundTheNextTime(t *testing.T) {
	there := devices{up(2, nic("eth0", 1), 0)}
	told := NewParentPlan(there, nil, ParentOptions{Mapped: map[string]string{"bond4": "eth0"}})
	result := told.chain([]netstate.Device{bond("bond4", 1, 2)})
	if result.broken != nil {
		t.Fatal(result.broken)
	}
	again := NewParentPlan(there, nil, ParentOptions{}).chain(result.now)
	if again.broken != nil || again.parent.Name != "eth0" || len(again.problems) > 0 {
		t.Errorf("the next time: %+v", again)
	}
	if now := result.now[0]; now.Kind != netstate.KindNIC || now.Bond != nil || now.Validate() != nil {
		t.Errorf("remembered as %+v", now)
	}
}
