package lease

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
)

// BenchmarkADD is an ADD and its DEL on a node with 100 pods, as processes open the store: of a range, and of a pool of which the node has seven
// blocks.
func BenchmarkADD(b *testing.B) {
	for _, of := range []string{"range", "pool"} {
		b.Run(of, func(b *testing.B) {
			dir := b.TempDir()
			open := func() *Store {
				s, err := Open(dir, "lan")
				if err != nil {
					b.Fatal(err)
				}
				return s
			}
			subnet := netip.MustParsePrefix("10.9.0.0/16")
			r := Request{Sets: []RangeSet{{{Span: Span{First: netip.MustParseAddr("10.9.0.2"), Last: netip.MustParseAddr("10.9.255.254")}, Subnet: subnet, Gateway: netip.MustParseAddr("10.9.0.1")}}}}
			if of == "pool" {
				r = Request{Pools: []string{"lan"}}
				grantBlocks(b, open(), subnet)
			}
			add := func(container string) {
				r.Attachment = attachment.Key{Network: "lan", ContainerID: container, IfName: "eth0"}
				if _, err := open().Allocate(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
			for i := range 100 {
				add(fmt.Sprintf("before%d", i))
			}
			b.ReportAllocs()
			for b.Loop() {
				add("one")
				b.StopTimer()
				if err := open().Release(b.Context(), r.Attachment, Policy{}); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// grantBlocks gives the store seven blocks of a pool, here and there.
func grantBlocks(b *testing.B, s *Store, subnet netip.Prefix) {
	l := pool.Layout{Name: "lan", UID: "1", Subnet: subnet, Gateway: netip.MustParseAddr("10.9.0.1"), BlockSize: 16, Ranges: []pool.Span{{First: netip.MustParseAddr("10.9.0.2"), Last: netip.MustParseAddr("10.9.255.254")}}}
	if err := s.SetPools(b.Context(), []string{"lan"}); err != nil {
		b.Fatal(err)
	}
	for i := range int64(7) {
		span, ok := l.Block(31 + i*97)
		if !ok {
			b.Fatal("no block")
		}
		g := pool.Grant{Pool: "lan", PoolUID: "1", Index: 31 + i*97, Block: fmt.Sprint(i), Epoch: 1, First: span.First, Addresses: "++++++++++++++++"}
		if err := s.PutGrants(b.Context(), l, []pool.Grant{g}); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Confirm(b.Context()); err != nil {
		b.Fatal(err)
	}
}
