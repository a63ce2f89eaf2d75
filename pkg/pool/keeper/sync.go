package keeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// sync reads all blocks of the store, and brings the store and the API together. Afterwards the store gives addresses in this boot.
func (m *member) sync(ctx context.Context) error {
	s, err := m.state(ctx)
	if err != nil {
		return unavailable(err)
	}
	if s.ID == "" {
		return nil // The network has no pool.
	}
	if err := m.mayConfirm(ctx, s); err != nil {
		return err
	}
	blocks, err := m.API.BlocksOf(ctx, m.Node)
	if err != nil {
		return unavailable(err)
	}
	met := map[string]bool{}
	v := visits{state: s}
	for _, b := range blocks {
		if !m.concerns(s, b) {
			continue
		}
		met[b.Metadata.Name] = true
		m.remember(s, b)
		if m.isDone(s, b) {
			continue
		}
		// The list is no read that a step can begin with: the step before can have changed this block.
		if v.note(b.Spec.Pool, m.visit(ctx, b.Spec.Pool, b.Spec.Index)); !m.answers() {
			return errors.Join(v.errs...)
		}
	}
	for _, p := range s.Pools {
		for _, g := range p.Grants {
			if met[g.Name()] || g.Empty() {
				continue
			}
			if v.note(g.Pool, m.visit(ctx, g.Pool, g.Index)); !m.answers() {
				return errors.Join(v.errs...)
			}
		}
	}
	m.report("a block that does not count", errors.Join(v.countNot...))
	if err := errors.Join(v.errs...); err != nil {
		return err // What one pool has lost must not hide what another one has.
	}
	m.untold = false
	return m.store.Confirm(ctx, s.Pools...)
}

// visits are the errors of the blocks of a store. Those in countNot do not keep it from giving addresses.
type visits struct {
	state          state
	errs, countNot []error
}

// note takes the error of a block. It does not count if the block is made up, or another pool has its addresses, or if its pool does not exist and the network's
// configuration does not name that pool.
func (v *visits) note(name string, err error) {
	if errors.Is(err, errMadeUp) || errors.Is(err, errOverlaps) || errors.Is(err, pool.ErrUnknown) && !v.state.of(name).Named {
		v.countNot = append(v.countNot, err)
		return
	}
	v.errs = append(v.errs, err)
}

// isDone says whether the store has met the block as it is, and has nothing to say there. A fence can end any time: when the last pod
// has ended.
func (m *member) isDone(s state, b pool.Block) bool {
	h, _ := b.Holder(s.me)
	_, tells := s.says(b)
	return s.gives(b.Spec.Pool) && !tells && h.Fenced == "" && m.seen[b.Metadata.Name] == b.Metadata.ResourceVersion
}

// mayConfirm says why the node must not give anything in this boot, or after a silence, yet: whoever reads the taint takes its addresses.
func (m *member) mayConfirm(ctx context.Context, s state) error {
	if s.Confirmed && !slices.ContainsFunc(s.Pools, func(p lease.PoolState) bool { return !p.Written }) {
		return nil
	}
	return m.notDead(ctx)
}

// notDead fails if a person has declared this node dead, and has not taken that back.
func (m *member) notDead(ctx context.Context) error {
	n, err := m.API.Node(ctx, m.Node)
	switch {
	case errors.Is(err, pool.ErrNotThere):
		return nil
	case err != nil:
		return unavailable(err)
	case n.OutOfService:
		return unavailable(errors.New("node " + m.Node + " has the taint node.kubernetes.io/out-of-service, which declares it dead: remove the taint"))
	}
	return nil
}

// remember notes what an earlier process has asked for. Nobody waits for that any more.
func (m *member) remember(s state, b pool.Block) {
	for _, w := range b.Spec.Want {
		a := ask{block: b.Metadata.Name, want: w}
		if _, known := m.asked[a.key()]; w.Is(s.me) && !known {
			m.asked[a.key()] = a
		}
	}
}

// asking is how long a store goes on asking for an owner's address if no ADD waits. The runtime tries an ADD again within that
// time. It asks for any address only while an ADD waits: what comes too late would be missing elsewhere.
const asking = 2 * time.Minute

// concerns says whether the store has something of the block, or asks for something.
func (m *member) concerns(s state, b pool.Block) bool {
	_, holds := b.Holder(s.me)
	return holds || !s.grant(b.Spec.Pool, b.Spec.Index).Empty() || slices.ContainsFunc(b.Spec.Want, func(w pool.Want) bool { return w.Is(s.me) })
}

// balance takes what the store lacks, and gives back what it has had too much of for a while.
func (m *member) balance(ctx context.Context) error {
	s, err := m.state(ctx)
	if errors.Is(err, lease.ErrNone) || err == nil && s.ID == "" {
		return nil
	}
	if err != nil {
		return err
	}
	if m.mustSync(s) {
		if err := m.sync(ctx); err != nil {
			return err
		}
	}
	var errs []error
	for _, blocks := range []map[string]pool.BlockSpec{m.wanted, m.fenced} {
		for _, b := range blocks {
			errs = append(errs, m.visit(ctx, b.Pool, b.Index))
		}
	}
	for _, p := range s.Pools {
		if p.Silent { // It would give nothing of more.
			errs = append(errs, m.settleMarked(ctx, p))
			continue
		}
		errs = append(errs, m.balancePool(ctx, p))
	}
	return errors.Join(append(errs, m.withdraw(ctx, s), m.keepOwners(ctx))...)
}

// keepOwners does what owners' addresses need.
func (m *member) keepOwners(ctx context.Context) error {
	s, err := m.state(ctx)
	if err != nil {
		return err
	}
	return errors.Join(m.keepBeside(ctx, s), m.claimAll(ctx, s))
}

func (m *member) balancePool(ctx context.Context, p lease.PoolState) error {
	if err := m.settleMarked(ctx, p); err != nil {
		return err
	}
	target, has := 0, ours(p)
	if p.Named {
		l, err := m.layout(ctx, p.Name)
		if err != nil {
			return err
		}
		p.Layout = l
		target = p.Target()
	}
	if has < target {
		delete(m.spare, p.Name)
		return m.fill(ctx, p.Name, 0)
	}
	if has == target && !hasExcluded(p) {
		delete(m.spare, p.Name)
		return nil
	}
	since, is := m.spare[p.Name]
	if !is {
		m.spare[p.Name] = m.now()
		return nil
	}
	if m.now().Sub(since) < m.Surplus {
		return nil
	}
	return m.giveBack(ctx, p, has-target)
}

// settleMarked goes on with what was marked before this process.
func (m *member) settleMarked(ctx context.Context, p lease.PoolState) error {
	for _, g := range p.Grants {
		if len(g.Offsets(string(pool.Marked))) > 0 {
			if err := m.visit(ctx, g.Pool, g.Index); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveBack returns blocks of which nobody has an address, but not more than is too much. Of a block with addresses that the pool
// excludes by now, only the others count.
func (m *member) giveBack(ctx context.Context, p lease.PoolState, surplus int) error {
	for _, g := range p.Grants {
		all, n := len(g.Offsets(pool.Ours)), p.Gives(g)
		if all == 0 || n > surplus || leasedIn(p, g) {
			continue
		}
		marked, err := m.store.MarkFree(ctx, g.Pool, g.Index, all)
		if err != nil {
			return err
		}
		if err := m.visit(ctx, g.Pool, g.Index); err != nil {
			return err
		}
		surplus -= n - p.Gives(marked)
	}
	return nil
}

// hasExcluded says whether the node has a block of which the pool excludes all by now, and no pod has any of it. The
// node gives it back, also if it has no surplus.
func hasExcluded(p lease.PoolState) bool {
	return slices.ContainsFunc(p.Grants, func(g pool.Grant) bool {
		return len(g.Offsets(pool.Ours)) > 0 && p.Gives(g) == 0 && !leasedIn(p, g)
	})
}

// leasedIn says whether any address of the grant has a lease.
func leasedIn(p lease.PoolState, g pool.Grant) bool {
	for a := range p.Leased {
		if g.Offset(a) >= 0 {
			return true
		}
	}
	return false
}

// withdraw takes back what the store has asked for and does not need any more. What an earlier process has asked for, nobody
// waits for.
func (m *member) withdraw(ctx context.Context, s state) error {
	for key, a := range m.asked {
		name := poolOf(s, a.block)
		waits := m.waits(name) > 0
		if waits || a.want.Address.IsValid() && (m.now().Sub(a.at) < asking || s.of(name).Leased[a.want.Address].State == lease.Held) {
			continue
		}
		switch err := m.unask(ctx, a); {
		case errors.Is(err, pool.ErrConflict):
			continue
		case err != nil:
			return err
		}
		if a.owner != (attachment.Owner{}) {
			switch err := m.comesNot(ctx, a.want.Claim, s.me); {
			case errors.Is(err, pool.ErrConflict):
				continue
			case err != nil:
				return unavailable(err) // The next look goes on here.
			}
			if err := m.store.Unexpect(ctx, name, a.want.Address, a.owner); err != nil {
				return err
			}
		}
		delete(m.asked, key)
	}
	return nil
}

// unask takes back what the store has asked for on a block. The store has it afterwards if it has come meanwhile. The error matches
// pool.ErrConflict if the block changes at the same time.
func (m *member) unask(ctx context.Context, a ask) error {
	b, err := m.API.Block(ctx, a.block)
	switch {
	case errors.Is(err, pool.ErrNotThere):
	case err != nil:
		return unavailable(err)
	case slices.ContainsFunc(b.Spec.Want, func(w pool.Want) bool { return w.Is(a.want.Party) && w.Address == a.want.Address }):
		err = m.write(ctx, b.Ask(pool.Want{Party: a.want.Party, Address: a.want.Address}))
	default:
		_, _, err = m.adopt(ctx, b)
	}
	switch {
	case errors.Is(err, pool.ErrConflict):
		return err
	case err != nil && !errors.Is(err, pool.ErrNotThere):
		return unavailable(err)
	}
	return nil
}

// poolOf returns the pool of the block with that name.
func poolOf(s state, block string) string {
	at := strings.LastIndexByte(block, '-') // A pool's name can begin with that of another one: vlan7 and vlan7-ipv6.
	for _, p := range s.Pools {
		if at >= 0 && at < len(block)-1 && block[:at] == p.Name {
			return p.Name
		}
	}
	return ""
}
