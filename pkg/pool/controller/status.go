package controller

import (
	"encoding/base64"

	"github.com/relink-cni/relink/pkg/pool"
)

// mostHinted is how many blocks the hint is about: 8 KB.
const mostHinted = 1 << 16

// Status returns the status of a pool with those blocks, without Sequence and Updated. all are all pools.
func Status(p pool.Pool, all []pool.Pool, blocks []pool.Block) pool.Status {
	l, err := p.Layout()
	if err != nil {
		return pool.Status{Problem: err.Error()}
	}
	n := l.Blocks()
	s := pool.Status{Blocks: n, Addresses: l.Addresses().String(), Problem: p.Stopped(all)}
	bits := make([]byte, (min(n, mostHinted)+7)/8)
	for i := range min(n, mostHinted) {
		bits[i/8] |= 1 << (i % 8)
	}
	for _, b := range blocks {
		s.Taken++
		if i := b.Spec.Index; i >= 0 && i < min(n, mostHinted) {
			bits[i/8] &^= 1 << (i % 8)
		}
		for _, c := range b.Spec.Addresses {
			if c != pool.Nobodys && c != pool.Never {
				s.Granted++
			}
		}
	}
	s.Free = base64.StdEncoding.EncodeToString(bits)
	return s
}
