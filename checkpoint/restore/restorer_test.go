package restore

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
)

// A restore that is to repair only a part of an attachment leaves it lost if its parent has gone meanwhile.
func TestAParentGoesBeforeAPartIsRepaired(t *testing.T) {
	for name, scope := range map[string]repairScope{"a member of the bond had gone": hostOnly, "another interface had gone": dependentRoutes} {
		t.Run(name, func(t *testing.T) {
			p := newLiveSandbox(t)
			records, _, err := p.store.List()
			if err != nil {
				t.Fatal(err)
			}
			ready, beside := slices.Clone(records), []checkpoint.Record(nil)
			if scope == dependentRoutes {
				ready[0].Interface.Routes[0].Source = netip.MustParseAddr("10.9.0.2") // It is an address of another interface.
				ready, beside = nil, ready
			}
			p.loseParent(t)
			r := must(NewRestorer(p.store))(t)
			defer r.Close()
			must(r.Run(t.Context(), Options{Task: &Task{Chain: Chain{Records: records}, Losses: []*Loss{{Member: true}}, Ready: ready, Beside: beside}}))(t)
			if records, _, err = p.store.List(); err != nil || Losses(must(r.Host().Devices())(t), records)[0] == nil {
				t.Errorf("it is not lost any more: %v", err)
			}
		})
	}
}
