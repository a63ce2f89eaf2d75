package node

import (
	"context"
	"encoding/base64"
	"math/rand/v2"

	"github.com/relink-cni/relink/pkg/pool"
)

// maxMisses is how many blocks a search tries that exist already, before it asks for all of them.
const maxMisses = 3

// search looks for a block that does not exist. It guesses, by the controller's hint if there is one: to be wrong costs one
// request, and to know costs a list of all blocks.
type search struct {
	view
	// tried are blocks that exist. After a list, all that are not in it do not.
	tried  map[int64]bool
	misses int
	// blocks are all blocks, nil before a list.
	blocks []pool.Block
}

// markExisting notes that somebody has the block.
func (s *search) markExisting(index int64) {
	if s.tried == nil {
		s.tried = map[int64]bool{}
	}
	s.tried[index] = true
	s.misses++
}

// next returns the index of a block to make, -1 if all exist.
func (s *search) next(ctx context.Context, api pool.API) (int64, error) {
	n := s.layout.Blocks()
	if s.blocks == nil && (s.misses >= maxMisses || int64(len(s.tried)) >= n) {
		if err := s.list(ctx, api); err != nil {
			return -1, err
		}
	}
	if s.blocks == nil {
		if i := s.guess(n); i >= 0 {
			return i, nil
		}
		if err := s.list(ctx, api); err != nil {
			return -1, err
		}
	}
	return s.firstFrom(rand.Int64N(n), n, func(i int64) bool { return !s.tried[i] && s.allowsBlock(i) }), nil
}

// guess returns a block that the hint has as free, or any if there is no hint.
func (s *search) guess(n int64) int64 {
	bits, err := base64.StdEncoding.DecodeString(s.Status.Free)
	if err != nil || len(bits) == 0 {
		i := rand.Int64N(n)
		if s.tried[i] || !s.allowsBlock(i) {
			return -1
		}
		return i
	}
	hinted := min(n, int64(len(bits))*8)
	return s.firstFrom(rand.Int64N(hinted), hinted, func(i int64) bool { return bits[i/8]&(1<<(i%8)) != 0 && !s.tried[i] && s.allowsBlock(i) })
}

// firstFrom returns the first index from start on that is fit, round the n blocks, -1 for none.
func (s *search) firstFrom(start, n int64, fit func(int64) bool) int64 {
	for i := range n {
		if index := (start + i) % n; fit(index) {
			return index
		}
	}
	return -1
}

// list asks for all blocks.
func (s *search) list(ctx context.Context, api pool.API) (err error) {
	if s.blocks, err = api.Blocks(ctx, s.layout.Name); err != nil {
		return err
	}
	if s.blocks == nil {
		s.blocks = []pool.Block{}
	}
	s.tried = map[int64]bool{}
	for _, b := range s.blocks {
		s.tried[b.Spec.Index] = true
	}
	return nil
}
