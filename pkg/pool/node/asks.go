package node

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// requestPeriod is how long a store goes on asking for an owner's address if no ADD waits, and how long it answers another one that does not ask
// anew. The runtime tries an ADD again within that time. A store asks for any address only while an ADD waits: what comes too late would be
// missing elsewhere.
const requestPeriod = 2 * time.Minute

// askKey is what a store asks for: an address on a block, the zero Addr for any.
type askKey struct {
	block   string
	address netip.Addr
}

// ask is what the store has asked for. owner is who gets it, nobody for any address.
type ask struct {
	owner   attachment.Owner
	askedAt time.Time
}

// wantKey is a party that asks on a block, in an epoch of it. Others who change the block change no key. Only the party itself withdraws what it
// asks for, and its agent can be away. A party that asks once more does so in another epoch.
type wantKey struct {
	block, uid, store string
	address           netip.Addr
	epoch             int64
}

func wantKeyOf(b pool.Block, w pool.Want) wantKey {
	return wantKey{b.Metadata.Name, b.Metadata.UID, w.Store, w.Address, w.Epoch}
}

// expired says of those who ask on the block whose node is dead, and who has asked for too long. It drops what is known of those who do not ask any
// more. A pod to which a machine migrates can wait for as long as the migration takes.
func (sc *storeController) expired(ctx context.Context, b pool.Block) func(pool.Want) bool {
	current, dead := map[wantKey]bool{}, map[string]bool{}
	for _, w := range b.Status.Want {
		k := wantKeyOf(b, w)
		if current[k] = true; sc.seenSince[k].IsZero() {
			sc.seenSince[k] = sc.clock()
		}
		if _, known := dead[w.Node]; !known && w.Node != sc.Node {
			dead[w.Node] = sc.isDead(ctx, w.Node)
		}
	}
	outdated := func(k wantKey) bool { return k.block == b.Metadata.Name && !current[k] }
	maps.DeleteFunc(sc.seenSince, func(k wantKey, _ time.Time) bool { return outdated(k) })
	maps.DeleteFunc(sc.passed, func(k wantKey, _ int) bool { return outdated(k) })
	return func(w pool.Want) bool {
		accepted := slices.ContainsFunc(b.Status.Holders, func(h pool.Holder) bool { return slices.Contains(h.Accepted, w.PodUID) })
		return dead[w.Node] || !accepted && sc.clock().Sub(sc.seenSince[wantKeyOf(b, w)]) > requestPeriod
	}
}

// isDead says that the node is declared dead, or deleted.
func (sc *storeController) isDead(ctx context.Context, node string) bool {
	n, err := sc.API.Node(ctx, node)
	return n.OutOfService || errors.Is(err, pool.ErrNotFound)
}

// demand is what another party asks for on a block, and this store cannot spare there.
type demand struct {
	pool.Want
	key wantKey
}

// elsewhere returns what others ask for on other blocks of the pool than this one, with the count that they still need. They can have died since.
func (sc *storeController) elsewhere(poolName, block string) (demands []demand) {
	for _, name := range slices.Sorted(maps.Keys(sc.unmet)) {
		if p, _, _ := pool.ParseBlockName(name); p != poolName || name == block {
			continue
		}
		for _, d := range sc.unmet[name] {
			if d.Count -= sc.passed[d.key]; d.Count > 0 {
				demands = append(demands, d)
			}
		}
	}
	return demands
}

// passOn hands over what is free in other blocks of the pool to those who ask for more than their block has.
func (sc *storeController) passOn(ctx context.Context, name string) error {
	s, err := sc.state(ctx)
	if err != nil {
		return err
	}
	p := s.poolState(name)
	return sc.eachGrant(p, func(g pool.Grant) error {
		if p.Free(g, pool.GrantedChars) == 0 || len(sc.elsewhere(name, g.Name())) == 0 {
			return nil
		}
		return sc.reconcileOne(ctx, name, g.Index, 0)
	})
}

// waits says whether this store goes on asking for that. A pod that has the address already is one to which a machine migrates.
func (sc *storeController) waits(p lease.PoolState, k askKey) bool {
	if !k.address.IsValid() {
		return sc.waitingCount(p.Name) > 0
	}
	a, asked := sc.asks[k]
	return asked && sc.clock().Sub(a.askedAt) < requestPeriod || p.Leased[k.address].State == lease.Held
}

// request notes on the block what the store wants. If somebody else changes the block at the same time, it notes nothing. A request begins a new
// epoch: so the holder sees that the store needs it once more.
func (sc *storeController) request(ctx context.Context, b pool.Block, w pool.Want, o attachment.Owner) error {
	b.Status.Epoch++
	w.Epoch, w.Count = b.Status.Epoch, min(w.Count, pool.MaxCount)
	if _, err := sc.API.UpdateBlock(ctx, b.Request(w)); err != nil {
		return pool.IgnoreChanged(err)
	}
	sc.asks[askKey{b.Metadata.Name, w.Address}] = ask{o, sc.clock()}
	return nil
}

// withdraw ends what nobody here waits for any more. What comes meanwhile, the store has.
func (sc *storeController) withdraw(ctx context.Context, s state) error {
	var errs []error
	for k, a := range sc.asks {
		name, index, _ := pool.ParseBlockName(k.block)
		if sc.waits(s.poolState(name), k) {
			continue
		}
		err := sc.reconcileOne(ctx, name, index, 0)
		if err == nil && a.owner != (attachment.Owner{}) {
			err = sc.store.CancelIncoming(ctx, name, k.address, a.owner)
		}
		if errs = append(errs, err); err == nil {
			delete(sc.asks, k)
		}
	}
	return errors.Join(errs...)
}

// reconcileIncoming looks at leases of owners' addresses that this node does not have. While a pod here has such an address, its machine migrates,
// and the store goes on asking for it. A reservation of one that does not come ends.
func (sc *storeController) reconcileIncoming(ctx context.Context, s state) error {
	var errs []error
	for _, p := range s.Pools {
		for a, l := range p.Leased {
			if l.Owner.Name == "" || s.mayGive(p.Name, a) {
				continue
			}
			switch l.State {
			case lease.Held:
				errs = append(errs, sc.requestMigrating(ctx, p, l, s.me))
			case lease.Reserved:
				errs = append(errs, sc.endIncoming(ctx, p, l))
			}
		}
	}
	return errors.Join(errs...)
}

// requestMigrating asks for the address of a machine that has come to this node. If its holder was declared dead or has given it back, this node
// takes it.
func (sc *storeController) requestMigrating(ctx context.Context, p lease.PoolState, l lease.Lease, me pool.Party) error {
	index, found := p.Layout.Index(l.Address)
	if !found {
		return nil
	}
	b, err := sc.API.Block(ctx, pool.BlockName(p.Name, index))
	if err != nil {
		return ignore(err, pool.ErrNotFound)
	}
	i := b.Offset(l.Address)
	if h, held := b.HolderOf(i); i < 0 || b.IsFenced(me) || held && !slices.Contains(h.Accepted, l.Newest().Pod.UID) {
		return nil
	}
	_, _, err = sc.obtainAddress(ctx, l.ClaimOf(p.Name).Acquisition, l.Address, index)
	return err
}

// endIncoming ends a reservation of an address that this node does not have, unless the address is about to come. It first withdraws the node's
// request: otherwise the address could still come, and nobody would know here whose it is.
func (sc *storeController) endIncoming(ctx context.Context, p lease.PoolState, l lease.Lease) error {
	if index, found := p.Layout.Index(l.Address); found {
		k := askKey{pool.BlockName(p.Name, index), l.Address}
		if _, asked := sc.asks[k]; asked && l.Last.ContainerID == "" {
			return nil // withdraw ends it in time.
		}
		delete(sc.asks, k)
		if err := sc.reconcileOne(ctx, p.Name, index, 0); err != nil {
			return err
		}
	}
	return sc.store.CancelIncoming(ctx, p.Name, l.Address, l.Owner)
}
