package check

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
)

// Kind is what is wrong.
type Kind string

// What is wrong with a pool, a node, a block or a claim.
const (
	WrongSpec   Kind = "wrong spec"
	Overlapping Kind = "overlapping"
	Exhausted   Kind = "exhausted"
	Recovering  Kind = "recovering"
	Terminating Kind = "terminating"
	// Unproven are addresses for which pods of a dead node may still answer.
	Unproven Kind = "unproven"
	// WrongBlock is a block that relink would not write.
	WrongBlock Kind = "wrong block"
	// NoPool is a block or a claim of a pool that does not exist.
	NoPool Kind = "no pool"
	// NoNode is a node that has addresses and no Node object, NoNodeFenced one that was declared dead.
	NoNode       Kind = "no node"
	NoNodeFenced Kind = "no node, fenced"
	// UselessRequest is a request for addresses that the node cannot use.
	UselessRequest Kind = "useless request"
	// NotHeld is a claim whose party does not have the address. NoOwner is one whose owner is proven gone.
	NotHeld Kind = "not held"
	NoOwner Kind = "no owner"
)

// Finding is one thing that is wrong.
type Finding struct {
	Kind Kind `json:"kind"`
	// Object is the kind and the name of what it is about.
	Object string `json:"object"`
	// Evidence is what the API says. Action is the command or the step that ends it.
	Evidence string `json:"evidence"`
	Action   string `json:"action"`
}

// Cluster is what the API says. Judgements are of owners with a UID.
type Cluster struct {
	Pools      []pool.Pool
	Blocks     []pool.Block
	Claims     []pool.Claim
	Nodes      []pool.Node
	Judgements []owner.Judgement
}

// Find returns what is wrong: with pools first, then with nodes, blocks and claims.
func (c Cluster) Find() []Finding {
	var findings []Finding
	for _, p := range c.Pools {
		findings = append(findings, c.checkPool(p)...)
	}
	return slices.Concat(findings, c.findNodes(), c.findBlocks(), c.findClaims())
}

// Owners returns the owners of the claims that a person can ask about: nobody can prove that one without a UID is gone.
func (c Cluster) Owners() (owners []attachment.Owner) {
	for _, claim := range c.Claims {
		if o := claim.Spec.Owner; o.UID != "" && !slices.Contains(owners, o) {
			owners = append(owners, o)
		}
	}
	return owners
}

// Undecided returns the judgements that say nothing of an owner.
func (c Cluster) Undecided() []owner.Judgement {
	return slices.DeleteFunc(slices.Clone(c.Judgements), func(j owner.Judgement) bool { return j.Standing != owner.Unknown })
}

// node returns the Node object of that name.
func (c Cluster) node(name string) (pool.Node, bool) {
	return find(c.Nodes, func(n pool.Node) bool { return n.Name == name })
}

// blocksOf returns the blocks of a pool.
func (c Cluster) blocksOf(name string) []pool.Block {
	return slices.DeleteFunc(slices.Clone(c.Blocks), func(b pool.Block) bool { return b.Spec.Pool != name })
}

// pool returns the pool of that name.
func (c Cluster) pool(name string) (pool.Pool, bool) {
	return find(c.Pools, func(p pool.Pool) bool { return p.Metadata.Name == name })
}

// find returns the first that matches.
func find[T any](all []T, matches func(T) bool) (found T, ok bool) {
	i := slices.IndexFunc(all, matches)
	if i < 0 {
		return found, false
	}
	return all[i], true
}

// ownerGone says why the owner of the claim is proven gone, empty if it is not.
func (c Cluster) ownerGone(claim pool.Claim) string {
	for _, j := range c.Judgements {
		if j.Owner == claim.Spec.Owner && j.Standing == owner.Gone {
			return j.Reason
		}
	}
	return ""
}

// deletion is how a person deletes a block of which no pod has an address.
func deletion(block string) string {
	return fmt.Sprintf("kubectl annotate addressblock %s %s/delete=%s && kubectl delete addressblock %s", block, pool.Group, block, block)
}
