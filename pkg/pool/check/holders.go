package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/printable"
)

// absence is what a node without a Node object has. reason says why it was declared dead, empty if it was not.
type absence struct {
	node, reason string
	addresses    int
	blocks       []string
}

// findNodes returns the nodes that have addresses, or had them before they were declared dead, and that do not exist.
func (c Cluster) findNodes() (findings []Finding) {
	for _, a := range c.absences() {
		f := Finding{NoNode, "node " + a.node, fmt.Sprintf("there is no such Node, and it has %s of %s", printable.Count(a.addresses, "address"), names(a.blocks)), fencing(a.node)}
		if a.reason != "" {
			f.Kind, f.Evidence = NoNodeFenced, f.Evidence+". It is declared dead: "+a.reason
			f.Action = "others take these addresses, each after a probe. What claims name waits for its owner: kubectl delete addressclaim, if it does not come back"
			if a.addresses == 0 {
				f.Action = "nothing is kept from others. When no pod has any address of the block: " + deletion(a.blocks[0])
			}
		}
		findings = append(findings, f)
	}
	return findings
}

// absences returns what nodes without a Node object have, by node.
func (c Cluster) absences() (absences []absence) {
	for _, b := range c.Blocks {
		for _, h := range b.Status.Holders {
			if _, found := c.node(h.Node); found {
				continue
			}
			i := slices.IndexFunc(absences, func(a absence) bool { return a.node == h.Node && (a.reason == "") == (h.Fenced == "") })
			if i < 0 {
				i, absences = len(absences), append(absences, absence{node: h.Node, reason: h.Fenced})
			}
			absences[i].addresses += strings.Count(b.Status.Addresses, h.ID)
			absences[i].blocks = append(absences[i].blocks, b.Metadata.Name)
		}
	}
	slices.SortStableFunc(absences, func(a, b absence) int { return cmp.Compare(a.node, b.node) })
	return absences
}

// findBlocks returns what is wrong with single blocks.
func (c Cluster) findBlocks() (findings []Finding) {
	for _, b := range c.Blocks {
		object, remove := "AddressBlock "+b.Metadata.Name, "when no pod has any address of it: "+deletion(b.Metadata.Name)
		if err := b.Check(); err != nil {
			findings = append(findings, Finding{WrongBlock, object, err.Error(), remove})
			continue
		}
		if p, exists := c.pool(b.Spec.Pool); !exists {
			findings = append(findings, Finding{NoPool, object, "there is no AddressPool " + b.Spec.Pool, remove})
		} else if l, err := p.Layout(); err == nil && !l.HasBlock(b) {
			findings = append(findings, Finding{WrongBlock, object, fmt.Sprintf("it has the addresses %s, and AddressPool %s has none or others there", b.Span(), b.Spec.Pool), remove})
		}
		for _, w := range b.Status.Want {
			if reason, action := c.useless(b, w); reason != "" {
				request := printable.Count(max(w.Count, 1), "address")
				if w.Address.IsValid() {
					request = w.Address.String()
				}
				findings = append(findings, Finding{UselessRequest, object, fmt.Sprintf("node %s asks for %s, and %s", w.Node, request, reason), action})
			}
		}
	}
	return findings
}

// useless says why the party cannot use what it asks for, and what ends the request, both empty if it can.
func (c Cluster) useless(b pool.Block, w pool.Want) (reason, action string) {
	withdrawal := "relink-agent of " + w.Node + " withdraws it within minutes: see that it runs"
	n, found := c.node(w.Node)
	owned := slices.IndexFunc(c.Claims, func(claim pool.Claim) bool { return claim.Metadata.Name == w.Claim })
	switch i := b.Offset(w.Address); {
	case !found:
		return "there is no such Node", fencing(w.Node)
	case b.IsFenced(w.Party):
		return "it is declared dead in this block", "end the pods there that have addresses of the block: the node leaves it then"
	case i >= 0 && b.HeldBy(w.Party, i):
		return "it has it", withdrawal
	case owned >= 0 && c.ownerGone(c.Claims[owned]) != "":
		return "the owner is gone: " + c.ownerGone(c.Claims[owned]), withdrawal
	case !n.Ready:
		return "it is not Ready: no pod of it waits for that", withdrawal + "; if the machine is dead: kubectl relink fence " + w.Node
	}
	return "", ""
}

// fencing is what a person does about a node that does not exist.
func fencing(node string) string {
	return "switch the machine off, then: kubectl relink fence " + node
}
