package lease

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/pool"
)

// Granted is what a store has of its pools.
type Granted struct {
	// ID is the identity of the store, 32 random hex digits. It is empty before the store hears of a pool.
	ID string
	// Node and NodeUID are the node's name and the UID of its object, as SetNode has noted them.
	Node, NodeUID string
	// Boot is this boot of the node.
	Boot string
	// Time is the time of the store: that of its leases. It can be months away from the time of day.
	Time time.Time
	// Confirmed says that the agent has read the API in this boot.
	Confirmed bool
	// Chosen has the pool that the node takes of each choice (pool.Choice).
	Chosen map[string]string
	// Pools are in the order in which the network's configuration last named them. Those that it names no more follow.
	Pools []PoolState
}

// PoolState is what a store has of a pool.
type PoolState struct {
	Name string
	// Time is the store's.
	Time time.Time
	// Named says that the network's configuration names the pool, as far as the last ADD knew.
	Named bool
	// Layout is the pool as the agent last read it. Its name is empty until then.
	Layout pool.Layout
	// Grants are in the order of the index. Those with nothing left are among them.
	Grants []pool.Grant
	// Used is how many addresses that pods can get have a lease, in any state. Gives counts all of these.
	Used int
	// Leased are the leases at addresses of the pool, also at those that are marked, lost or not granted.
	Leased map[netip.Addr]Lease
}

// PoolState returns what the store has of the pool.
func (g Granted) PoolState(name string) PoolState {
	if i := slices.IndexFunc(g.Pools, func(p PoolState) bool { return p.Name == name }); i >= 0 {
		return g.Pools[i]
	}
	return PoolState{Name: name, Leased: map[netip.Addr]Lease{}}
}

// Grant returns the store's part of the block, the zero Grant for none.
func (p PoolState) Grant(index int64) pool.Grant {
	if i := slices.IndexFunc(p.Grants, func(g pool.Grant) bool { return g.Index == index }); i >= 0 {
		return p.Grants[i]
	}
	return pool.Grant{Pool: p.Name, Index: index}
}

// addLimit is how long an ADD can take, with its probes: a runtime gives up earlier.
const addLimit = 5 * time.Minute

// Uses returns what the leases at addresses of the pool are.
func (p PoolState) Uses() map[netip.Addr]pool.Use {
	uses := map[netip.Addr]pool.Use{}
	for a, l := range p.Leased {
		use := pool.Use{Held: l.State == Held, Waiting: l.State == Reserved, Claimed: l.Claimed}
		use.Stays = l.ReservedByHandAt(p.Time) || !l.Until.IsZero() || l.IsClaimable() && !l.Claimed
		use.Probed = use.Held && p.Time.Sub(l.Newest().Since) > addLimit
		if l.hasOwner() {
			use.Claim = l.ClaimOf(p.Name).ClaimName()
		}
		for _, h := range l.Holders {
			use.PodUIDs = append(use.PodUIDs, h.Pod.UID)
		}
		uses[a] = use
	}
	return uses
}

// Granted returns what the store has of its pools. ErrNotLeased: there is no store.
func (s *Store) Granted(ctx context.Context) (Granted, error) {
	return result(ctx, s.view, (*leaseTx).granted)
}

func (l *leaseTx) granted() (Granted, error) {
	g := Granted{ID: l.text(keyID), Node: l.text(keyNode), NodeUID: l.text(keyNodeUID), Boot: l.bootID(), Time: l.instant, Confirmed: l.isConfirmed(), Chosen: l.chosen()}
	named, err := l.namedPools()
	if err != nil {
		return Granted{}, err
	}
	for _, name := range l.allPools(named) {
		state := PoolState{Name: name, Time: l.instant, Named: slices.Contains(named, name), Leased: map[netip.Addr]Lease{}}
		if state.Layout, err = l.layout(name); err != nil {
			return Granted{}, err
		}
		if state.Grants, err = l.grantsOf(name); err != nil {
			return Granted{}, err
		}
		g.Pools = append(g.Pools, state)
	}
	if len(g.Pools) == 0 {
		return g, nil
	}
	return g, l.eachCurrent(func(lease Lease) error {
		for i := range g.Pools {
			g.Pools[i].count(lease)
		}
		return nil
	})
}

// count notes a lease, if it is at an address of the pool.
func (p *PoolState) count(lease Lease) {
	match := slices.ContainsFunc(p.Layout.Ranges, func(s pool.Span) bool { return s.Contains(lease.Address) })
	for _, g := range p.Grants {
		i := g.Offset(lease.Address)
		if i < 0 {
			continue
		}
		match = true
		if gives, _ := g.Assignable(i); gives && !p.Layout.Excluded(lease.Address) {
			p.Used++
		}
	}
	if match {
		p.Leased[lease.Address] = lease
	}
}

// HasPools says whether the store has to do with pools. ErrNotLeased: nothing was ever given.
func (s *Store) HasPools(ctx context.Context) (bool, error) {
	return result(ctx, s.view, func(l *leaseTx) (bool, error) { return l.text(keyID) != "", nil })
}

// isConfirmed says whether the agent has read the API in this boot.
func (l *leaseTx) isConfirmed() bool { return l.text(keyConfirmed) == l.bootID() }

// Confirm notes that the agent has read the API in this boot. Until then the store gives nothing of a pool: while the node was away,
// others may have got what it had. ErrNotLeased: there is no store.
func (s *Store) Confirm(ctx context.Context) error {
	return s.change(ctx, func(l *leaseTx) error {
		if l.isConfirmed() {
			return errUnchanged
		}
		failpoint.Here("before confirming pools")
		return l.putText(keyConfirmed, l.bootID())
	})
}

// SetPools notes the pools that the network's configuration names, or choices of them, in its order. It makes the store and its identity.
func (s *Store) SetPools(ctx context.Context, names []string) error {
	return s.update(ctx, func(l *leaseTx) error { return l.setPools(names) })
}

// setPools notes the pools. errUnchanged: they are the same as before.
func (l *leaseTx) setPools(names []string) error {
	list := encode(&names)
	if bytes.Equal(list, l.meta.Get([]byte(keyPools))) {
		return errUnchanged
	}
	failpoint.Here("before noting pools")
	return errors.Join(l.ensureID(), l.meta.Put([]byte(keyPools), list))
}

// ensureID gives the store its identity, if it has none.
func (l *leaseTx) ensureID() error {
	if l.text(keyID) != "" {
		return nil
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // It never fails.
	return l.putText(keyID, hex.EncodeToString(id[:]))
}

// SetChosen notes which pool the node takes of these choices, "" for none. The next ADD asks relink-agent about a choice without a pool.
func (s *Store) SetChosen(ctx context.Context, names map[string]string) error {
	return s.update(ctx, func(l *leaseTx) error {
		before := l.chosen()
		for choice, name := range names {
			if name == "" {
				_ = l.meta.Delete([]byte(keyChosen + choice)) // It fails only in a transaction that reads.
			} else if err := l.putText(keyChosen+choice, name); err != nil {
				return err
			}
		}
		return unchangedUnless(!maps.Equal(before, l.chosen()))
	})
}

// chosen returns the pool of each choice.
func (l *leaseTx) chosen() map[string]string {
	chosen := map[string]string{}
	cursor := l.meta.Cursor()
	for k, name := cursor.Seek([]byte(keyChosen)); bytes.HasPrefix(k, []byte(keyChosen)); k, name = cursor.Next() {
		chosen[strings.TrimPrefix(string(k), keyChosen)] = string(name)
	}
	return chosen
}

// resolvePools returns the pools that the node takes of the choices. ErrUnchosen: it does not know all of them.
func (l *leaseTx) resolvePools(choices []string) (names []string, err error) {
	for _, c := range choices {
		name := c
		if pool.IsChoice(c) {
			name = l.text(keyChosen + c)
		}
		if name == "" {
			err = fmt.Errorf("network %s: %w: %s", l.store.network, ErrUnchosen, strings.Join(pool.Candidates(c), ", "))
			continue
		}
		names = append(names, name)
	}
	return names, err
}

// namedPools returns the pools that the node takes of those that the configuration last named.
func (l *leaseTx) namedPools() (names []string, err error) {
	if err = decodeFrom(l.meta, keyPools, "names of pools", &names); err != nil {
		return nil, err
	}
	names, err = l.resolvePools(names)
	if errors.Is(err, ErrUnchosen) {
		return names, nil
	}
	return names, err
}

// allPools returns the named pools, and then those that are named no more.
func (l *leaseTx) allPools(named []string) []string {
	names := slices.Clone(named)
	cursor := l.layouts.Cursor()
	for k, _ := cursor.First(); k != nil; k, _ = cursor.Next() {
		if name := string(k); !slices.Contains(named, name) {
			names = append(names, name)
		}
	}
	return names
}

// layout returns the pool as the agent last read it, the zero Layout until then.
func (l *leaseTx) layout(name string) (layout pool.Layout, err error) {
	err = decodeFrom(l.layouts, name, "layout of pool "+name, &layout)
	return layout, err
}

// grantsOf returns what the store has of a pool, in the order of the index.
func (l *leaseTx) grantsOf(name string) (grants []pool.Grant, err error) {
	err = l.eachGrant(name, func(g pool.Grant) { grants = append(grants, g) })
	return grants, err
}

// eachGrant calls f for every grant of the pool, in the order of the index.
func (l *leaseTx) eachGrant(name string, f func(pool.Grant)) error {
	prefix := textKey(name)
	cursor := l.grants.Cursor()
	for k, b := cursor.Seek(prefix); bytes.HasPrefix(k, prefix); k, b = cursor.Next() {
		g, _, err := decodeGrant(k, b)
		if err != nil {
			return err
		}
		f(g)
	}
	return nil
}

// ErrNotGranted says that the store has nothing of that.
var ErrNotGranted = errors.New("not granted to this node")

// grant returns the grant of a block. rest is what a newer relink has added.
func (l *leaseTx) grant(name string, index int64) (g pool.Grant, rest []byte, err error) {
	key := grantKey(name, index)
	if b := l.grants.Get(key); b != nil {
		return decodeGrant(key, b)
	}
	return g, nil, fmt.Errorf("block %s is %w", pool.BlockName(name, index), ErrNotGranted)
}

// Lost returns the addresses of the pool that pods hold and the node does not have: another node may give them, or has lost them
// in turn. The address of a virtual machine that is on its way to this node is one of them.
func (p PoolState) Lost() (addresses []netip.Addr) {
	for a, l := range p.Leased {
		if l.State == Held && !p.has(a) {
			addresses = append(addresses, a)
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses
}

// has says whether the API has the address for the node. The node may be giving it back.
func (p PoolState) has(a netip.Addr) bool {
	return slices.ContainsFunc(p.Grants, func(g pool.Grant) bool {
		i := g.Offset(a)
		return i >= 0 && g.Addresses[i] != pool.NotGranted
	})
}

// Target is how many addresses of the pool the node should have. It needs none of a pool that the configuration names no more or
// that is deleted, and none before the agent has read the pool.
func (p PoolState) Target() int {
	if p.Layout.BlockSize == 0 || p.Layout.Unneeded || !p.Named {
		return 0
	}
	return pool.Target(p.Layout.BlockSize, p.Used)
}

// Gives returns how many addresses of the grant pods can get. An address that the pool excludes by now is none of them.
func (p PoolState) Gives(g pool.Grant) (n int) {
	for _, i := range g.Offsets(pool.GrantedChars) {
		if !p.Layout.Excluded(g.Address(i)) {
			n++
		}
	}
	return n
}

// Free returns how many of these have one of the characters in the grant, and no lease.
func (p PoolState) Free(g pool.Grant, chars string) (n int) {
	for _, i := range g.Offsets(chars) {
		if _, leased := p.Leased[g.Address(i)]; !leased && !p.Layout.Excluded(g.Address(i)) {
			n++
		}
	}
	return n
}
