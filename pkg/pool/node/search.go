package node

import (
	"context"
	"encoding/base64"
	"math/rand/v2"

	"github.com/relink-cni/relink/pkg/pool"
)

// maxMisses is how many blocks a search tries that exist already, before it asks for all of them.
const maxMisses = 3

// search looks for a block that does not exist. It guesses, by the controller's hint if there is one. A wrong guess costs one request. To be
// certain costs a list of all blocks.
type search struct {
	view
	// tried are blocks that exist. After a list, it has all of them.
	tried  map[int64]bool
	misses int
	// blocks are all blocks, nil before a list.
	blocks []pool.Block
}

// markExisting notes that somebody has the block.
func (s *search) markExisting(index int64) {
	s.tried[index] = true
	s.misses++
}

// next returns the index of a block to make, -1 if all exist.
func (s *search) next(ctx context.Context, api pool.API) (int64, error) {
	if s.blocks == nil {
		if i := s.guess(); i >= 0 && s.misses < maxMisses {
			return i, nil
		}
		blocks, err := api.Blocks(ctx, s.layout.Name)
		if err != nil {
			return -1, err
		}
		s.blocks, s.tried = append([]pool.Block{}, blocks...), map[int64]bool{}
		for _, b := range blocks {
			s.tried[b.Spec.Index] = true
		}
	}
	n := s.layout.Blocks()
	return firstFrom(rand.Int64N(n), n, s.fits), nil
}

// guess returns a block that the hint has as free, or any if there is no hint. It returns -1 if it knows none.
func (s *search) guess() int64 {
	n := s.layout.Blocks()
	bits, err := base64.StdEncoding.DecodeString(s.Status.Free)
	if err != nil || len(bits) == 0 {
		i := rand.Int64N(n)
		if !s.fits(i) {
			return -1
		}
		return i
	}
	n = min(n, int64(len(bits))*8)
	return firstFrom(rand.Int64N(n), n, func(i int64) bool { return bits[i/8]&(1<<(i%8)) != 0 && s.fits(i) })
}

// fits says whether no search has found the block, and this node may take it.
func (s *search) fits(index int64) bool { return !s.tried[index] && s.allowsBlock(index) }

// firstFrom returns the first index that is fit, -1 for none. It begins at start, and goes round the n blocks.
func firstFrom(start, n int64, fit func(int64) bool) int64 {
	for i := range n {
		if index := (start + i) % n; fit(index) {
			return index
		}
	}
	return -1
}
