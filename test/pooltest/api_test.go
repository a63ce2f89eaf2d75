package pooltest_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/pooltest"
)

var errAway = errors.New("away")

func block(name, node string) pool.Block {
	return pool.Block{Metadata: pool.Meta{Name: name, Labels: map[string]string{pool.NodeLabel(node): ""}}, Spec: pool.BlockSpec{Pool: "lan", Node: node}}
}

// An object is changed and deleted only as it was read. Who has made it anew has made another one.
func TestOnlyWhatWasReadIsChanged(t *testing.T) {
	a, ctx := &pooltest.API{}, t.Context()
	first, err := a.CreateBlock(ctx, block("lan-0", "n1"))
	if err != nil || first.Metadata.UID == "" || first.Metadata.ResourceVersion == "" {
		t.Fatal(first, err)
	}
	same, err := a.UpdateBlock(ctx, first)
	if err != nil || same.Metadata.ResourceVersion != first.Metadata.ResourceVersion {
		t.Errorf("a change of nothing: %+v, %v", same.Metadata, err)
	}
	next := first
	next.Spec.Node = "n2"
	second, err := a.UpdateBlock(ctx, next)
	if err != nil || second.Metadata.ResourceVersion == first.Metadata.ResourceVersion || second.Metadata.UID != first.Metadata.UID {
		t.Fatal(second, err)
	}
	_, again := a.UpdateBlock(ctx, next)
	_, exists := a.CreateBlock(ctx, block("lan-0", "n1"))
	unread := a.DeleteBlock(ctx, first)
	gone := a.DeleteBlock(ctx, second)
	_, missing := a.Block(ctx, "lan-0")
	third, err := a.CreateBlock(ctx, block("lan-0", "n1"))
	if err != nil || third.Metadata.UID == second.Metadata.UID {
		t.Errorf("made anew: %+v, %v", third.Metadata, err)
	}
	other := third
	other.Metadata.UID = second.Metadata.UID
	_, replaced := a.UpdateBlock(ctx, other)
	for what, is := range map[string][2]error{
		"an older version":       {again, pool.ErrConflict},
		"a second one":           {exists, pool.ErrExists},
		"delete an older one":    {unread, pool.ErrConflict},
		"delete":                 {gone, nil},
		"what is deleted":        {missing, pool.ErrNotFound},
		"another one":            {replaced, pool.ErrConflict},
		"update what is missing": {func() error { _, err := a.UpdateClaim(ctx, pool.Claim{Metadata: pool.Meta{Name: "c"}}); return err }(), pool.ErrNotFound},
	} {
		if !errors.Is(is[0], is[1]) || is[1] == nil && is[0] != nil {
			t.Errorf("%s: %v, want %v", what, is[0], is[1])
		}
	}
}

// What a test has got is its own.
func TestNobodySharesParts(t *testing.T) {
	a := &pooltest.API{}
	mine := block("lan-0", "n1")
	mine.Status.Holders = []pool.Holder{{ID: "A"}}
	made := a.AddBlock(mine)
	made.Status.Holders[0].ID = "B"
	mine.Status.Holders[0].ID = "C"
	got, err := a.Block(t.Context(), "lan-0")
	if err != nil || got.Status.Holders[0].ID != "A" {
		t.Errorf("%+v, %v", got.Status.Holders, err)
	}
}

// A pool with a finalizer stays until nobody holds it. Its status and the rest are changed apart.
func TestPools(t *testing.T) {
	a, ctx := &pooltest.API{}, t.Context()
	p := a.AddPool(pool.Pool{Metadata: pool.Meta{Name: "lan", Finalizers: []string{pool.Finalizer}}, Spec: pool.Spec{Subnet: "10.3.0.0/24"}})
	p.Spec.Paused, p.Status.Granted = true, 7
	status, err := a.UpdatePoolStatus(ctx, p)
	if err != nil || status.Spec.Paused || status.Status.Granted != 7 {
		t.Errorf("the status: %+v, %v", status, err)
	}
	if _, err := a.UpdatePool(ctx, p); !errors.Is(err, pool.ErrConflict) {
		t.Errorf("an older one: %v", err)
	}
	a.RemovePool("lan")
	now, err := a.Pool(ctx, "lan")
	if err != nil || now.Metadata.DeletionTimestamp == "" {
		t.Errorf("being deleted: %+v, %v", now.Metadata, err)
	}
	now.Metadata.Finalizers = nil
	if _, err := a.UpdatePool(ctx, now); err != nil {
		t.Error(err)
	}
	if all, err := a.Pools(ctx); len(all) > 0 || err != nil {
		t.Errorf("deleted: %+v, %v", all, err)
	}
	a.AddPool(pool.Pool{Metadata: pool.Meta{Name: "wan"}})
	a.RemovePool("wan")
	if _, err := a.Pool(ctx, "wan"); !errors.Is(err, pool.ErrNotFound) {
		t.Errorf("without a finalizer: %v", err)
	}
}

func TestLists(t *testing.T) {
	a, ctx := &pooltest.API{}, t.Context()
	a.AddBlock(block("lan-1", "n1"))
	a.AddBlock(block("lan-0", "n2"))
	b := block("wan-0", "n1")
	b.Spec.Pool = "wan"
	a.AddBlock(b)
	at := netip.MustParseAddr("10.3.0.4")
	a.AddClaim(pool.Claim{Metadata: pool.Meta{Name: "c1"}, Status: pool.ClaimStatus{Address: at, Active: pool.Place{Party: pool.Party{Node: "n1"}}}})
	a.AddClaim(pool.Claim{Metadata: pool.Meta{Name: "c2"}, Spec: pool.ClaimSpec{Pool: "lan"}, Status: pool.ClaimStatus{Active: pool.Place{Party: pool.Party{Node: "n1"}}}})
	a.AddNode(pool.Node{Name: "n2"})
	a.AddNode(pool.Node{Name: "n1", OutOfService: true})
	names := func(all []pool.Block, _ error) (n []string) {
		for _, b := range all {
			n = append(n, b.Metadata.Name)
		}
		return n
	}
	claims := func(all []pool.Claim, _ error) (n []string) {
		for _, c := range all {
			n = append(n, c.Metadata.Name)
		}
		return n
	}
	for what, is := range map[string][2][]string{
		"of a pool":   {names(a.Blocks(ctx, "lan")), {"lan-0", "lan-1"}},
		"of a node":   {names(a.BlocksOf(ctx, "n1")), {"lan-1", "wan-0"}},
		"all claims":  {claims(a.Claims(ctx, "lan")), {"c2"}},
		"claims":      {claims(a.ClaimsOf(ctx, "n1")), {"c1", "c2"}},
		"one address": {claims(a.ClaimsAt(ctx, at)), {"c1"}},
	} {
		if !slices.Equal(is[0], is[1]) {
			t.Errorf("%s: %v, want %v", what, is[0], is[1])
		}
	}
	nodes, err := a.Nodes(ctx)
	if err != nil || len(nodes) != 2 || nodes[0].Name != "n1" || !nodes[0].OutOfService {
		t.Errorf("%+v, %v", nodes, err)
	}
	if _, err := a.Node(ctx, "n3"); !errors.Is(err, pool.ErrNotFound) {
		t.Errorf("a node that is not there: %v", err)
	}
	a.Forget("lan-0")
	if got := names(a.Blocks(ctx, "lan")); !slices.Equal(got, []string{"lan-1"}) {
		t.Errorf("after a loss: %v", got)
	}
}

// A request can fail before the API has done it, and its answer can get lost.
func TestRequestsFail(t *testing.T) {
	ctx := t.Context()
	a := &pooltest.API{BeforeRequest: func(request string) error {
		if request == "create block lan-0" {
			return errAway
		}
		return nil
	}, AfterRequest: func(request string) error {
		if request == "create block lan-1" {
			return errAway
		}
		return nil
	}}
	for name, want := range map[string]error{"lan-0": pool.ErrNotFound, "lan-1": nil} {
		if _, err := a.CreateBlock(ctx, block(name, "n1")); !errors.Is(err, errAway) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := a.Block(ctx, name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	if got := a.Requests(); len(got) != 3 || !slices.Contains(got, "create block lan-1") {
		t.Errorf("%v", got)
	}
}
