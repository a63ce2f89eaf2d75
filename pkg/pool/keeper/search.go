package keeper

import (
	"context"
	"encoding/base64"
	"math/rand/v2"

	"github.com/relink-cni/relink/pkg/pool"
)

// mostMisses is how many blocks a search tries that exist already, before it asks for all of them.
const mostMisses = 3

// search looks for a block that does not exist. It guesses, by the controller's hint if there is one: to be wrong costs one
// request, and to know costs a list of all blocks.
type search struct {
	view
	// tried are blocks that exist. After a list, all that are not in it do not.
	tried  map[int64]bool
	misses int
	// seen are all blocks, nil before a list.
	seen []pool.Block
}

// exists notes that somebody has the block.
func (s *search) exists(index int64) {
	if s.tried == nil {
		s.tried = map[int64]bool{}
	}
	s.tried[index] = true
	s.misses++
}

// next returns the index of a block to make, -1 if all exist.
func (s *search) next(ctx context.Context, api pool.API) (int64, error) {
	n := s.layout.Blocks()
	if s.seen == nil && (s.misses >= mostMisses || int64(len(s.tried)) >= n) {
		if err := s.list(ctx, api); err != nil {
			return -1, err
		}
	}
	if s.seen == nil {
		if i := s.guess(n); i >= 0 {
			return i, nil
		}
		if err := s.list(ctx, api); err != nil {
			return -1, err
		}
	}
	return s.from(rand.Int64N(n), n, func(i int64) bool { return !s.tried[i] && s.allows(i) }), nil
}

// guess returns a block that the hint has as free, or any if there is no hint.
func (s *search) guess(n int64) int64 {
	bits, err := base64.StdEncoding.DecodeString(s.Status.Free)
	if err != nil || len(bits) == 0 {
		i := rand.Int64N(n)
		if s.tried[i] || !s.allows(i) {
			return -1
		}
		return i
	}
	known := min(n, int64(len(bits))*8)
	return s.from(rand.Int64N(known), known, func(i int64) bool { return bits[i/8]&(1<<(i%8)) != 0 && !s.tried[i] && s.allows(i) })
}

// from returns the first index from start on that is fit, round the n blocks, -1 for none.
func (s *search) from(start, n int64, fit func(int64) bool) int64 {
	for i := range n {
		if at := (start + i) % n; fit(at) {
			return at
		}
	}
	return -1
}

// list asks for all blocks.
func (s *search) list(ctx context.Context, api pool.API) (err error) {
	if s.seen, err = api.Blocks(ctx, s.layout.Name); err != nil {
		return unavailable(err)
	}
	if s.seen == nil {
		s.seen = []pool.Block{}
	}
	s.tried = map[int64]bool{}
	for _, b := range s.seen {
		s.tried[b.Spec.Index] = true
	}
	return nil
}
