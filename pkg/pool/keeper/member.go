package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// mostTries bounds how often a block is read again that somebody else changes at the same time.
const mostTries = 8

// member is a store of the node. It does one thing at a time: who has the turn reads a block, and uses that read once.
type member struct {
	*Keeper
	store   *lease.Store
	network string
	turn    chan struct{}
	// news is closed and made anew when the store has got addresses. It is guarded by Keeper.mu, as is waiting: how many
	// ADDs wait for an address of a pool.
	news    chan struct{}
	waiting map[string]int

	// The rest belongs to who has the turn.

	// spare is since when the store has more of a pool than it needs.
	spare map[string]time.Time
	// dry is when no block of the pool was left.
	dry map[string]time.Time
	// filled is when somebody last looked for addresses of the pool.
	filled map[string]time.Time
	// wanted are blocks of which other parties want something.
	wanted map[string]pool.BlockSpec
	// passed is how many addresses of other blocks those have got who ask on a block.
	passed map[passing]passed
	// asked is what the store has asked for.
	asked map[string]ask
	// fenced are blocks from which this node was fenced, and of which pods still have addresses.
	fenced map[string]pool.BlockSpec
	// told is what the store knows of the pools.
	told map[string]pool.Layout
	// seen is the version of each block that this store has made, or of which it has answered all that others want.
	seen map[string]string
	// compared is the UID of the block that this store has made last, and compared with the other pools since.
	compared string
	// untold says that the store obeys something that the blocks may not say so far.
	untold bool
}

// ask is what the store has asked for on a block.
type ask struct {
	block string
	want  pool.Want
	// owner is who gets the address, nobody for any address.
	owner attachment.Owner
	at    time.Time
}

// key is the key of member.asked.
func (a ask) key() string {
	if !a.want.Address.IsValid() {
		return a.block
	}
	return a.block + " " + a.want.Address.String()
}

// begin waits for the turn. done gives it back.
func (m *member) begin(ctx context.Context) (done func(), err error) {
	select {
	case m.turn <- struct{}{}:
		return func() { <-m.turn }, nil
	case <-ctx.Done():
		return nil, unavailable(fmt.Errorf("the agent is busy with network %s: %w", m.network, ctx.Err()))
	}
}

// state is the store's part of the pools.
type state struct {
	lease.Granted
	me pool.Party
}

// state reads the store.
func (m *member) state(ctx context.Context) (state, error) {
	g, err := m.store.Granted(ctx)
	if err != nil && !errors.Is(err, lease.ErrForeign) {
		return state{}, err
	}
	uid := m.nodeUID(ctx)
	if err != nil || g.ID != "" && (g.Node != m.Node || uid != "" && g.NodeUID != uid) {
		// What is another node's neither takes part in the pools, nor raises the alarm. If the node has its name back, all is well.
		if err = m.store.OnNode(ctx, m.Node, uid); err != nil {
			return state{}, err
		}
		if g, err = m.store.Granted(ctx); err != nil {
			return state{}, err
		}
	}
	return state{g, pool.Party{Node: m.Node, NodeUID: uid, Network: m.network, Store: g.ID}}, nil
}

// ready is state for a store that gives addresses of the pool: it is made if there is none, and the API is read once in each boot, and
// after each silence.
func (m *member) ready(ctx context.Context, name string) (state, error) {
	s, err := m.state(ctx)
	if errors.Is(err, lease.ErrNone) || err == nil && s.ID == "" {
		if err := m.store.WantPools(ctx, []string{name}); err != nil {
			return s, unavailable(err)
		}
		s, err = m.state(ctx)
	}
	if err != nil {
		return s, unavailable(err)
	}
	switch {
	case s.gives(name):
		return s, nil
	case s.of(name).Silent:
		return s, unavailable(fmt.Errorf("relink-agent waits for the kubelet to renew the Lease kube-node-lease/%s", m.Node))
	}
	if err := m.sync(ctx); err != nil {
		return s, err
	}
	if s, err = m.state(ctx); err != nil {
		return s, unavailable(err)
	}
	return s, nil
}

// of returns what the store has of the pool.
func (s state) of(name string) lease.PoolState {
	for _, p := range s.Pools {
		if p.Name == name {
			return p
		}
	}
	return lease.PoolState{Name: name, Session: s.Boot, Written: true}
}

// grant returns the store's part of the block, the zero Grant for none.
func (s state) grant(name string, index int64) pool.Grant {
	p := s.of(name)
	if i := slices.IndexFunc(p.Grants, func(g pool.Grant) bool { return g.Index == index }); i >= 0 {
		return p.Grants[i]
	}
	return pool.Grant{Pool: name, Index: index}
}

// ours is how many addresses of the pool the store may give.
func ours(p lease.PoolState) (n int) {
	for _, g := range p.Grants {
		n += p.Gives(g)
	}
	return n
}

// visit reads the block, and brings the store and the API together.
func (m *member) visit(ctx context.Context, name string, index int64) error {
	for range mostTries {
		b, err := m.API.Block(ctx, pool.BlockName(name, index))
		if errors.Is(err, pool.ErrNotThere) {
			return m.gone(ctx, name, index)
		}
		if err != nil {
			return unavailable(err)
		}
		if err = m.meet(ctx, b); !errors.Is(err, pool.ErrConflict) && !errors.Is(err, pool.ErrNotThere) {
			return err
		}
	}
	return unavailable(fmt.Errorf("AddressBlock %s changes all the time", pool.BlockName(name, index)))
}

// meet brings the store and a block together that was just read. The error matches pool.ErrConflict or pool.ErrNotThere if
// the block must be read again.
func (m *member) meet(ctx context.Context, b pool.Block) error {
	s, g, err := m.adopt(ctx, b)
	if err != nil {
		return err
	}
	if h, is := b.Holder(s.me); is && h.Fenced != "" {
		return m.leave(ctx, b, s)
	}
	delete(m.fenced, b.Metadata.Name)
	b, said := s.says(b)
	if g, err = m.answer(ctx, b, s, g); err != nil {
		return err
	}
	next, changed, remove := g.Settle(b, s.me)
	switch {
	case !changed && !said:
		m.seen[b.Metadata.Name] = b.Metadata.ResourceVersion
		return nil
	case remove:
		return m.remove(ctx, b)
	}
	return m.write(ctx, next)
}

// write asks the API to change the block, and adopts what the API has made of it.
func (m *member) write(ctx context.Context, b pool.Block) error {
	failpoint.Here("before a block is written")
	made, err := m.API.UpdateBlock(ctx, b)
	if err != nil {
		return err
	}
	m.wrote(nil)
	failpoint.Here("block written")
	s, _, err := m.adopt(ctx, made)
	if err == nil && !slices.ContainsFunc(made.Spec.Want, func(w pool.Want) bool { return !w.Is(s.me) }) {
		m.seen[made.Metadata.Name] = made.Metadata.ResourceVersion
	}
	return err
}

// remove deletes a block of which nobody has anything.
func (m *member) remove(ctx context.Context, b pool.Block) error {
	failpoint.Here("before a block is deleted")
	if err := m.API.DeleteBlock(ctx, b); err != nil {
		return err
	}
	m.wrote(nil)
	failpoint.Here("block deleted")
	return m.gone(ctx, b.Spec.Pool, b.Spec.Index)
}

// adopt brings the grant in the store to what the API has just answered. A node that has more than the API knows raises the
// alarm, and its grant stays.
func (m *member) adopt(ctx context.Context, b pool.Block) (state, pool.Grant, error) {
	s, err := m.state(ctx)
	if err != nil {
		return s, pool.Grant{}, err
	}
	was := s.grant(b.Spec.Pool, b.Spec.Index)
	if err := m.fits(ctx, b, was); err != nil {
		return s, pool.Grant{}, err
	}
	if err := m.compare(ctx, b, was, s.me); err != nil {
		return s, pool.Grant{}, err
	}
	if b, err = m.correct(ctx, s, b); err != nil {
		return s, pool.Grant{}, err
	}
	g, lost, err := was.Adopt(b, s.me)
	if h, is := b.Holder(s.me); len(lost) > 0 && (!is || h.Fenced == "") {
		err = fmt.Errorf("AddressBlock %s: %w: this node has %d addresses that are not its own there", g.Name(), pool.ErrOlder, len(lost))
	}
	if err != nil {
		return s, was, m.alarm(ctx, b.Spec.Pool, err)
	}
	return s, g, m.put(ctx, was, g)
}

// gone is adopt for a block that the API itself does not have.
func (m *member) gone(ctx context.Context, name string, index int64) error {
	s, err := m.state(ctx)
	if err != nil {
		return err
	}
	was := s.grant(name, index)
	g, lost := was.Gone()
	if len(lost) > 0 {
		return m.alarm(ctx, name, fmt.Errorf("AddressBlock %s: %w: it does not exist, and this node has %d addresses of it", g.Name(), pool.ErrOlder, len(lost)))
	}
	delete(m.seen, g.Name())
	delete(m.fenced, g.Name())
	return m.put(ctx, was, g)
}

// put stores a grant that has changed.
func (m *member) put(ctx context.Context, was, g pool.Grant) error {
	if was == g {
		return nil
	}
	l, err := m.layout(ctx, g.Pool)
	if err != nil {
		return err
	}
	failpoint.Here("before a grant is stored")
	if err := m.store.PutGrants(ctx, l, []pool.Grant{g}); err != nil {
		return err
	}
	failpoint.Here("grant stored")
	if n := len(g.Offsets(pool.Ours)) - len(was.Offsets(pool.Ours)); n > 0 {
		m.tell()
	}
	return nil
}

// tell wakes all that wait for addresses.
func (m *member) tell() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.news)
	m.news = make(chan struct{})
}
