package lease

import (
	"errors"
	"maps"
	"testing"

	"github.com/relink-cni/relink/pkg/pool"
)

// An ADD of a choice needs the agent once. Afterwards the store knows the pool, until the agent corrects it.
func TestChosenPools(t *testing.T) {
	n := newNode(t, "10.3.0.15", Policy{})
	ctx, s := t.Context(), n.store(t)
	racks := pool.Choice("lan", "lan6")
	must(t, s.SetPools(ctx, []string{racks}))
	n.grant(t, lan, "..++")
	n.grant(t, lan6, "++++....")
	add := func(container string) (string, error) {
		leases, err := s.Allocate(ctx, Request{Attachment: n.key(container + "/eth0"), Pools: []string{racks}})
		if err != nil {
			return "", err
		}
		return s.PoolAddresses()[0].Layout.Name + " " + leases[0].Address.String(), nil
	}
	for _, step := range []struct {
		chosen map[string]string
		want   string
		named  string
	}{
		{nil, "", ""},
		{map[string]string{racks: "lan", "a|b": "b"}, "lan 10.3.0.2", "lan"},
		{map[string]string{racks: "lan"}, "lan 10.3.0.3", "lan"},
		{map[string]string{racks: "lan6"}, "lan6 fd00:3::10", "lan6"},
		{map[string]string{racks: ""}, "", ""},
	} {
		if step.chosen != nil {
			must(t, s.SetChosen(ctx, step.chosen))
		}
		got, err := add("c-" + step.want)
		const missing = "network pods: this node does not know which of these pools it takes: lan, lan6"
		if unchosen := errors.Is(err, ErrUnchosen) && err.Error() == missing; got != step.want || unchosen != (step.want == "") {
			t.Errorf("%v: %q, %v, want %q", step.chosen, got, err, step.want)
		}
		named := ""
		for _, p := range n.granted(t).Pools {
			if p.Named {
				named += p.Name
			}
		}
		if named != step.named {
			t.Errorf("%v: the network names %q, want %q", step.chosen, named, step.named)
		}
	}
	if got := n.granted(t).Chosen; !maps.Equal(got, map[string]string{"a|b": "b"}) {
		t.Errorf("at the end: %v", got)
	}
}
