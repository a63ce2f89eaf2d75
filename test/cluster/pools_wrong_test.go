package cluster

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/relink-cni/relink/pkg/pool"
)

// deaf is an API whose answers to changes get lost after the API has made the change.
type deaf struct {
	pool.API
	mu sync.Mutex
	r  *rand.Rand
	// percent is how many of 100 answers get lost, lost how many have got lost.
	percent, lost int
}

func (d *deaf) set(percent int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.percent = percent
}

// losses is how many answers have got lost.
func (d *deaf) losses() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

// loses says whether the next answer gets lost.
func (d *deaf) loses() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.r.IntN(100) >= d.percent {
		return false
	}
	d.lost++
	return true
}

func heard[T any](d *deaf, made T, err error) (T, error) {
	var none T
	if d.loses() {
		return none, errLost
	}
	return made, err
}

func (d *deaf) UpdatePool(ctx context.Context, p pool.Pool) (pool.Pool, error) {
	made, err := d.API.UpdatePool(ctx, p)
	return heard(d, made, err)
}

func (d *deaf) CreateBlock(ctx context.Context, b pool.Block) (pool.Block, error) {
	made, err := d.API.CreateBlock(ctx, b)
	return heard(d, made, err)
}

func (d *deaf) UpdateBlock(ctx context.Context, b pool.Block) (pool.Block, error) {
	made, err := d.API.UpdateBlock(ctx, b)
	return heard(d, made, err)
}

func (d *deaf) DeleteBlock(ctx context.Context, b pool.Block) error {
	_, err := heard(d, struct{}{}, d.API.DeleteBlock(ctx, b))
	return err
}

func (d *deaf) CreateClaim(ctx context.Context, c pool.Claim) (pool.Claim, error) {
	made, err := d.API.CreateClaim(ctx, c)
	return heard(d, made, err)
}

func (d *deaf) UpdateClaim(ctx context.Context, c pool.Claim) (pool.Claim, error) {
	made, err := d.API.UpdateClaim(ctx, c)
	return heard(d, made, err)
}

func (d *deaf) DeleteClaim(ctx context.Context, c pool.Claim) error {
	_, err := heard(d, struct{}{}, d.API.DeleteClaim(ctx, c))
	return err
}

// Whatever answers get lost, nodes agree with the API as soon as none does, and no address has two pods meanwhile.
func (a *api) answersLost(t *testing.T, users map[string]user) {
	const least = 5
	for _, seed := range seeds(t, 1) {
		t.Logf("%s=%d", seedEnv, seed)
		w := a.newSimulation(t, users, "10.42.0.0/28", seed)
		var all []*deaf
		for i, m := range w.nodes {
			d := &deaf{API: m.api.API, r: rand.New(rand.NewPCG(seed, uint64(i)))}
			d.set(40)
			m.api.API, all = d, append(all, d)
		}
		lost := func() (n int) {
			for _, d := range all {
				n += d.losses()
			}
			return n
		}
		for n := 0; n < 60 || lost() < least && n < 600; n++ { // Few steps change anything in some worlds.
			w.step()
		}
		for _, d := range all {
			d.set(0)
		}
		if n := lost(); n < least {
			t.Errorf("only %d answers got lost: this shows nothing", n)
		}
		w.calm()
	}
}

// calm lets all nodes look until they agree with the API, and checks it.
func (w *simulation) calm() {
	w.t.Helper()
	for range 2 {
		for _, m := range w.nodes {
			w.look(m)
		}
	}
	w.recover()
	for _, m := range w.nodes {
		w.look(m)
	}
	w.noDouble()
	w.settled("at the end")
	for _, m := range w.nodes {
		for w.start(m) {
			w.noDouble()
		}
	}
}

// outdated is something between a node and the API that answers reads with states of some time ago, as a cache does. Changes go to
// the API itself.
type outdated struct {
	pool.API
	r *rand.Rand
	// percent is how many of 100 reads are of an older state, old how many were.
	percent, old int
	// blocks are all states of each block that the API has answered, the zero Block for none. lists are all lists.
	blocks map[string][]pool.Block
	lists  [][]pool.Block
	claims map[string][]pool.Claim
}

func newOutdated(of pool.API, r *rand.Rand) *outdated {
	return &outdated{API: of, r: r, blocks: map[string][]pool.Block{}, claims: map[string][]pool.Claim{}}
}

// earlier returns one of the answers before, and whether it is to be answered.
func earlier[T any](o *outdated, all []T) (before T, is bool) {
	if len(all) == 0 || o.r.IntN(100) >= o.percent {
		return before, false
	}
	o.old++
	return all[o.r.IntN(len(all))], true
}

func (o *outdated) Block(ctx context.Context, name string) (pool.Block, error) {
	if b, is := earlier(o, o.blocks[name]); is {
		if b.Metadata.Name == "" {
			return b, pool.ErrNotFound
		}
		return b, nil
	}
	b, err := o.API.Block(ctx, name)
	if err == nil || b.Metadata.Name == "" {
		o.blocks[name] = append(o.blocks[name], b)
	}
	return b, err
}

// note notes what the API has made of a block: a cache knows of that, too.
func (o *outdated) note(b pool.Block, err error) (pool.Block, error) {
	if err == nil {
		o.blocks[b.Metadata.Name] = append(o.blocks[b.Metadata.Name], b)
	}
	return b, err
}

func (o *outdated) CreateBlock(ctx context.Context, b pool.Block) (pool.Block, error) {
	return o.note(o.API.CreateBlock(ctx, b))
}

func (o *outdated) UpdateBlock(ctx context.Context, b pool.Block) (pool.Block, error) {
	return o.note(o.API.UpdateBlock(ctx, b))
}

func (o *outdated) list(made []pool.Block, err error) ([]pool.Block, error) {
	if before, is := earlier(o, o.lists); is {
		return before, nil
	}
	if err == nil {
		o.lists = append(o.lists, slices.Clone(made))
	}
	return made, err
}

func (o *outdated) Blocks(ctx context.Context, name string) ([]pool.Block, error) {
	return o.list(o.API.Blocks(ctx, name))
}

func (o *outdated) BlocksOf(ctx context.Context, node string) ([]pool.Block, error) {
	made, err := o.API.BlocksOf(ctx, node)
	if before, is := earlier(o, o.lists); is {
		return slices.DeleteFunc(slices.Clone(before), func(b pool.Block) bool {
			return !slices.ContainsFunc(b.Status.Holders, func(h pool.Holder) bool { return h.Node == node })
		}), nil
	}
	return made, err
}

func (o *outdated) Claim(ctx context.Context, name string) (pool.Claim, error) {
	if c, is := earlier(o, o.claims[name]); is {
		return c, nil
	}
	c, err := o.API.Claim(ctx, name)
	if err == nil {
		o.claims[name] = append(o.claims[name], c)
	}
	return c, err
}

// Old states that something answers with, lists and single blocks, give no node an address. The node raises the alarm at most.
func (a *api) oldStates(t *testing.T, users map[string]user) {
	old, refused := 0, 0
	for _, seed := range seeds(t, 1) {
		t.Logf("%s=%d", seedEnv, seed)
		w := a.newSimulation(t, users, "10.43.0.0/28", seed)
		var all []*outdated
		for i, m := range w.nodes {
			o := newOutdated(m.api.API, rand.New(rand.NewPCG(seed, uint64(i))))
			m.api.API, all = o, append(all, o)
		}
		for range 40 {
			w.step()
		}
		for _, o := range all {
			o.percent = 70
		}
		for n := 0; n < 10 || refused == 0 && n < 100; n++ { // Some worlds have few old states that a new agent could believe.
			i := w.r.IntN(len(w.nodes))
			refused += strings.Count(w.nodes[i].log.String(), pool.ErrStale.Error())
			w.nodes[i] = a.again(t, users, w.nodes[i]) // A new agent reads all of its blocks.
			w.look(w.nodes[i])
			for range 3 {
				w.step()
			}
		}
		for _, o := range all {
			o.percent = 0
			old += o.old
		}
		for _, m := range w.nodes {
			refused += strings.Count(m.log.String(), pool.ErrStale.Error())
		}
		w.calm()
	}
	if old < 10 || refused == 0 {
		t.Errorf("%d old states were answered, and %d refused: this shows nothing", old, refused)
	}
}
