package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	// PoolLabel has the pool's name as its value, if a label can have it.
	PoolLabel = Group + "/pool"
	// holderPrefix begins the key of a label for each node that has addresses of a block or asks for some.
	holderPrefix = "node." + Group + "/"
)

// NodeLabel returns the key of the label by which a node finds its blocks. A node's name can be longer than a label's key, so
// it has a hash.
func NodeLabel(node string) string {
	sum := sha256.Sum256([]byte(node))
	return holderPrefix + hex.EncodeToString(sum[:10])
}

// setLabels writes the labels by which the block is found, and for people who has how much of it.
func (b *Block) setLabels() {
	labels := map[string]string{}
	if len(b.Spec.Pool) <= 63 {
		labels[PoolLabel] = b.Spec.Pool
	}
	var nodes []string
	for _, h := range b.Status.Holders {
		labels[NodeLabel(h.Node)] = ""
		text := fmt.Sprintf("%s %d", h.Node, strings.Count(b.Status.Addresses, h.ID))
		if h.Fenced != "" {
			text += " (fenced)"
		}
		nodes = append(nodes, text)
	}
	for _, w := range b.Status.Want {
		labels[NodeLabel(w.Node)] = ""
	}
	b.Metadata.Labels, b.Status.Nodes = labels, strings.Join(nodes, ", ")
}
