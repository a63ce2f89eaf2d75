package check

import (
	"fmt"
	"strings"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/printable"
)

// checkPool returns what is wrong with a pool as a whole.
func (c Cluster) checkPool(p pool.Pool) (findings []Finding) {
	add := func(k Kind, evidence, action string) {
		findings = append(findings, Finding{k, "AddressPool " + p.Metadata.Name, evidence, action})
	}
	blocks := c.blocksOf(p.Metadata.Name)
	l, err := p.Layout()
	switch overlap := p.OverlapReason(c.Pools); {
	case err != nil:
		add(WrongSpec, err.Error(), "correct the spec: kubectl edit addresspool "+p.Metadata.Name)
	case overlap != "":
		add(Overlapping, overlap, "kubectl delete addresspool "+p.Metadata.Name+", once no network names it")
	case l.Exhausted(blocks):
		add(Exhausted, exhaustion(l, blocks), "add a range at the end of spec.ranges, or free what nobody needs: relink ipam list --state reserved, on the nodes")
	}
	if r := p.Status.Recovery; r != nil {
		add(Recovering, fmt.Sprintf("%s; it waits for %s", r.Message, awaited(r.Unasserted(c.Nodes))),
			"see that relink-agent and relink-controller run. Declare a node dead that is off for good. docs/pool-runbooks.md says when a person may end it")
	}
	if p.Metadata.DeletionTimestamp != "" {
		add(Terminating, "it was deleted, and "+keeps(p, blocks), "end the pods that have its addresses: relink ipam list, on these nodes")
	}
	if unproven := unprovenOf(blocks); len(unproven) > 0 {
		add(Unproven, fmt.Sprintf("pods of dead nodes may still answer for %s: %s", printable.Count(len(unproven), "address"), names(unproven)),
			"relink probes before it gives one; it ends when the dead node is back and has left the block, or with the block")
	}
	return findings
}

// exhaustion says who has the addresses.
func exhaustion(l pool.Layout, blocks []pool.Block) string {
	fenced, wants := 0, 0
	for _, s := range pool.Shares(blocks) {
		fenced, wants = fenced+s.FencedAddresses, wants+s.Wants
	}
	text := fmt.Sprintf("nodes have all its %s addresses", l.Addresses())
	if fenced > 0 {
		text += fmt.Sprintf(", %d of them fenced", fenced)
	}
	if wants > 0 {
		text += fmt.Sprintf("; nodes ask for %d", wants)
	}
	return text
}

// awaited names the nodes that a recovery waits for.
func awaited(nodes []pool.Node) string {
	if len(nodes) == 0 {
		return "relink-controller"
	}
	var list []string
	for _, n := range nodes {
		list = append(list, n.Name)
	}
	return names(list)
}

// keeps says what keeps a pool that is deleted.
func keeps(p pool.Pool, blocks []pool.Block) string {
	var nodes []string
	for _, s := range pool.Shares(blocks) {
		if s.Blocks > 0 {
			nodes = append(nodes, fmt.Sprintf("%s (%d)", s.Node, s.Addresses))
		}
	}
	switch {
	case len(nodes) > 0:
		return "nodes have addresses of it: " + names(nodes)
	case len(blocks) > 0:
		return "it has a block of nobody: " + blocks[0].Metadata.Name
	}
	return "no node has any of it: the finalizers are " + strings.Join(p.Metadata.Finalizers, ", ")
}

// unprovenOf returns the addresses of the blocks for which pods of dead nodes may still answer.
func unprovenOf(blocks []pool.Block) (addresses []string) {
	for _, b := range blocks {
		for _, a := range b.Status.Unproven {
			addresses = append(addresses, a.String())
		}
	}
	return addresses
}

// names are the first of them.
func names(list []string) string { return printable.First(list, 5, ", ") }
