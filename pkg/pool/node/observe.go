package node

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// knownStore is what this controller has last read of a store: enough to know which changes concern it.
type knownStore struct {
	id            string
	pools, blocks []string
}

// names says whether the block names the store as a holder, or as one that asks for addresses.
func (k knownStore) names(node string, b *pool.Block) bool {
	if b == nil {
		return false
	}
	me := pool.Party{Node: node, Store: k.id}
	_, holds := b.Holder(me)
	return holds || slices.ContainsFunc(b.Status.Want, func(w pool.Want) bool { return w.SameParty(me) })
}

// noteGranted notes what the store has.
func (sc *storeController) noteGranted(g lease.Granted) {
	k := knownStore{id: g.ID}
	for choice := range g.Chosen {
		k.pools = append(k.pools, pool.Candidates(choice)...)
	}
	for _, p := range g.Pools {
		k.pools = append(k.pools, p.Name)
		for _, grant := range p.Grants {
			if !grant.Empty() {
				k.blocks = append(k.blocks, grant.Name())
			}
		}
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.known[sc.network] = k
}

// knownStores returns what this controller knows of each store that has pools, by its network.
func (nc *Controller) knownStores() map[string]knownStore {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	return maps.Clone(nc.known)
}

// noteVersion notes the version of a block that the watch has shown, nil if the block has ended.
func (nc *Controller) noteVersion(name string, b *pool.Block) {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	if delete(nc.versions, name); b != nil {
		nc.versions[name] = b.Metadata.ResourceVersion
	}
}

// reconcileChanged reconciles a block that has changed, unless this store has made the change.
func (sc *storeController) reconcileChanged(ctx context.Context, block string) error {
	sc.mu.Lock()
	version, exists := sc.versions[block]
	sc.mu.Unlock()
	name, index, ok := pool.ParseBlockName(block)
	if !ok || exists && sc.handledVersions[block] == version {
		return nil
	}
	return sc.reconcileBlock(ctx, name, index)
}

// actsOn says whether a change of a pool is one that this node acts on. The pools' controller counts again and again, and no agent asks the API
// because of that.
func (nc *Controller) actsOn(before *pool.Pool, after pool.Pool) bool {
	if nc.hasNewerSequence(after) {
		return true
	}
	if r := after.Status.Recovery; r != nil {
		return before == nil || !reflect.DeepEqual(before.Status.Recovery, r)
	}
	l, err := nc.layoutOf(after)
	nc.mu.Lock()
	read := nc.layouts[l.Name]
	nc.mu.Unlock()
	return err == nil && nc.used(l.Name) && !reflect.DeepEqual(l, read)
}

// used says whether a store has to do with the pool.
func (nc *Controller) used(name string) bool {
	for _, k := range nc.knownStores() {
		if slices.Contains(k.pools, name) {
			return true
		}
	}
	return false
}

// reconcilePool tells the stores what a pool is like now: its exclude, gateway and routes hold for the next ADD. It reads the pool before it
// acts on a loss: the watch can be late.
func (nc *Controller) reconcilePool(ctx context.Context, name string) error {
	p, err := nc.API.Pool(ctx, name)
	if err != nil {
		return ignore(err, pool.ErrNotFound)
	}
	err = nc.recoverRead(ctx, p)
	for network, k := range nc.knownStores() {
		if !slices.Contains(k.pools, name) {
			continue
		}
		sc, wrong := nc.storeController(network)
		if wrong == nil {
			wrong = sc.withTurn(ctx, func(ctx context.Context) error { return errors.Join(sc.chooseAgain(ctx), sc.relayLayouts(ctx)) })
		}
		err = errors.Join(err, wrong)
	}
	return err
}

// relayLayouts tells the store what its pools are like now. It leaves out pools of which the store has never had an address.
func (sc *storeController) relayLayouts(ctx context.Context) error {
	s, err := sc.state(ctx)
	if err != nil {
		return err
	}
	sc.mu.Lock()
	layouts := maps.Clone(sc.layouts)
	sc.mu.Unlock()
	for _, p := range s.Pools {
		if l, found := layouts[p.Name]; found && p.Layout.Name != "" {
			err = errors.Join(err, sc.store.PutGrants(ctx, l, nil))
		}
	}
	return err
}
