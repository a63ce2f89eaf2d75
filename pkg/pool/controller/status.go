package controller

import (
	"encoding/base64"

	"github.com/relink-cni/relink/pkg/pool"
)

// maxHinted is how many blocks the hint is about: 8 KB.
const maxHinted = 1 << 16

// Status returns the status of a pool with those blocks, without Sequence and Updated. pools are all pools. What nodes have is counted, also
// if the spec is wrong: the finalizer's policy believes it.
func Status(p pool.Pool, pools []pool.Pool, blocks []pool.Block) pool.Status {
	s := pool.Status{Existing: int64(len(blocks)), ObservedGeneration: p.Metadata.Generation}
	for _, b := range blocks {
		for _, c := range b.Spec.Addresses {
			if c != pool.Unassigned && c != pool.Excluded {
				s.Granted++
			}
		}
	}
	l, err := p.Layout()
	if err != nil {
		s.Problem = err.Error()
		return s
	}
	n := l.Blocks()
	s.Blocks, s.Addresses, s.Problem = n, l.Addresses().String(), p.OverlapReason(pools)
	bits := make([]byte, (min(n, maxHinted)+7)/8)
	for i := range min(n, maxHinted) {
		bits[i/8] |= 1 << (i % 8)
	}
	for _, b := range blocks {
		if i := b.Spec.Index; i >= 0 && i < min(n, maxHinted) {
			bits[i/8] &^= 1 << (i % 8)
		}
	}
	s.Free = base64.StdEncoding.EncodeToString(bits)
	return s
}
