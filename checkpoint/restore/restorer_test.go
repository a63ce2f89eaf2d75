package restore

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/kernel"
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

// An ADD may be stopped while it saves its checkpoint, or many follow each other.
func TestARestoreDuringASave(t *testing.T) {
	p := newLiveSandbox(t)
	p.loseParent(t)
	f := must(os.OpenFile(filepath.Join(p.store.Dir(), ".saves.lock"), os.O_RDWR|os.O_CREATE, 0o600))(t)
	defer f.Close()
	if err := flock.Try(f, flock.Shared); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	p.expectOutcome(t, p.restore(t, false), Restored)
	if waited := time.Since(start); waited > 10*time.Second {
		t.Errorf("it has waited for %s", waited)
	}
	must(p.store.LastRestore())(t)
	records, _, err := p.store.List()
	host := must(kernel.OpenHost())(t)
	defer host.Close()
	if err != nil || Losses(must(host.Devices())(t), records)[0] != nil {
		t.Errorf("it is still lost: %v", err)
	}
}
