package pool

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	// Unassigned is the character of an address that anybody may take.
	Unassigned = '.'
	// Excluded is the character of an address that is never given.
	Excluded = '-'
	// Claimed is the character of an address that no node has, and that waits for the owner of its claim.
	Claimed = '='
	// letters are the characters of holders.
	letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
)

// Block is an AddressBlock. Its name has the pool and the index, so nobody can make it twice: to create it is to claim it.
type Block struct {
	Metadata Meta        `json:"metadata"`
	Spec     BlockSpec   `json:"spec"`
	Status   BlockStatus `json:"status"`
}

// BlockSpec says which addresses the block has. It never changes.
type BlockSpec struct {
	// Pool is the name of the AddressPool.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="pool never changes: make another block"
	Pool string `json:"pool"`
	// PoolUID is the UID of the AddressPool.
	//
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="poolUID never changes: make another block"
	PoolUID string `json:"poolUID"`
	// Index is the block's place in the pool, from 0.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048575
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="index never changes: make another block"
	Index int64 `json:"index"`
	// Node is the name of the node that has made the block.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="node never changes: make another block"
	Node string `json:"node"`
	// First is the first address.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="must be an IP address in its short form, such as 10.3.0.5 or fd00::5"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="first never changes: make another block"
	First netip.Addr `json:"first"`
	// Last is the last address.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="must be an IP address in its short form, such as 10.3.0.5 or fd00::5"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="last never changes: make another block"
	Last netip.Addr `json:"last"`
}

// BlockStatus says whose each address of the block is. The API has no subresource for it: to create a block is to claim it, and one write has
// to make both.
//
// +kubebuilder:validation:XValidation:rule=`self.addresses.split("").all(c, c in ['.', '-', '='] || has(self.holders) && self.holders.exists(h, h.id == c))`,message=`each character of addresses must be the id of a holder, '.', '-' or '='`,fieldPath=".addresses"
// +kubebuilder:validation:XValidation:rule="self.addresses == oldSelf.addresses || self.epoch > oldSelf.epoch",message="epoch must grow with each change of addresses",fieldPath=".epoch"
type BlockStatus struct {
	// Epoch grows with each change of an owner.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4000000000000000000
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="epoch never gets smaller"
	Epoch int64 `json:"epoch"`
	// Holders are the stores that have addresses of the block.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:XValidation:rule="self.all(h, self.exists_one(o, o.store == h.store && o.node == h.node))",message="each store of a node is one holder only"
	Holders []Holder `json:"holders,omitempty"`
	// Addresses has one character for each address, in order: the ID of a holder, '.' for one that anybody may take, '=' for one that no node
	// has and that waits for the owner of its claim, or '-' for one that is never given.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/.=-]+$`
	// +kubebuilder:validation:XValidation:rule="self.size() == oldSelf.size()",message="the number of addresses never changes: make another block"
	Addresses string `json:"addresses"`
	// Nodes says how many addresses each node has, such as "node1 12, node2 4 (fenced)". It is for people.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=20000
	Nodes string `json:"nodes,omitempty"`
	// Unproven are addresses that a fenced party had. Its pods may still answer: who gets such an address probes for it before
	// each use.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Type=string
	// +kubebuilder:validation:items:MinLength=2
	// +kubebuilder:validation:items:MaxLength=39
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="must be an IP address in its short form, such as 10.3.0.5 or fd00::5"
	// +listType=atomic
	Unproven []netip.Addr `json:"unproven,omitempty"`
	// Want are the parties that ask the holders for addresses.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Want []Want `json:"want,omitempty"`
}

// Holder is a party that has addresses of the block.
type Holder struct {
	// ID is the party's character in Addresses.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]$`
	ID    string `json:"id"`
	Party `json:",inline"`
	// Epoch is the block's, when the holder got an address last.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4000000000000000000
	Epoch int64 `json:"epoch"`
	// Boot is the boot of the node in which the holder has last said that it has this, empty if it has not said so yet.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Boot string `json:"boot,omitempty"`
	// Accepted are the UIDs of the pods to which virtual machines migrate from pods of the holder, with their addresses. Both pods have the
	// address until the holder gives it back.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=atomic
	Accepted []string `json:"accepted,omitempty"`
	// Fenced says why the holder is proven dead, empty if it is not. Others may take what it has. Only the controller and
	// people write it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Fenced string `json:"fenced,omitempty"`
}

// Want is a party that asks for addresses.
type Want struct {
	Party `json:",inline"`
	// Count is how many it asks for. A kubelet runs 110 pods, unless it is told otherwise.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=110
	Count int `json:"count,omitempty"`
	// Epoch is the block's, when the party asked for count addresses last. Only the party changes it: a new one tells who gives that
	// the party needs as many once more.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4000000000000000000
	Epoch int64 `json:"epoch,omitempty"`
	// Address is the one that it asks for, for the owner of the claim. Otherwise it takes any.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="must be an IP address in its short form, such as 10.3.0.5 or fd00::5"
	Address netip.Addr `json:"address,omitzero"`
	// Claim is the name of the claim of that owner.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Claim string `json:"claim,omitempty"`
	// PodUID is the UID of the owner's pod.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	PodUID string `json:"podUID,omitempty"`
	// Sources are the UIDs of the pods from which the owner's virtual machine can migrate to this pod.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=atomic
	Sources []string `json:"sources,omitempty"`
}

// MaxCount is how many addresses a party can ask for at a time.
const MaxCount = 110

// maxEpoch leaves room for more epochs than any block can have.
const maxEpoch = 4e18

// BlockName returns the name of a pool's block.
func BlockName(pool string, index int64) string { return pool + "-" + strconv.FormatInt(index, 10) }

// ParseBlockName returns the pool and the index of a block with that name. A pool's name can have hyphens, too.
func ParseBlockName(name string) (pool string, index int64, ok bool) {
	i := strings.LastIndexByte(name, '-')
	index, err := strconv.ParseInt(name[i+1:], 10, 64)
	return name[:max(i, 0)], index, i > 0 && err == nil
}

// NewBlock returns the block with that index. All of it is the party's. ok is false if the pool has no such block.
func NewBlock(l Layout, index int64, me Party, boot string) (_ Block, ok bool) {
	span, ok := l.Block(index)
	if !ok {
		return Block{}, false
	}
	b := Block{Metadata: Meta{Name: BlockName(l.Name, index)}, Spec: BlockSpec{
		Pool: l.Name, PoolUID: l.UID, Index: index, Node: me.Node, First: span.First, Last: span.Last,
	}, Status: BlockStatus{Epoch: 1, Holders: []Holder{{ID: letters[:1], Party: me, Epoch: 1, Boot: boot}}}}
	var chars []byte
	for a := span.First; span.Contains(a); a = a.Next() {
		c := letters[0]
		if l.Excluded(a) {
			c = Excluded
		}
		chars = append(chars, c)
	}
	b.Status.Addresses = string(chars)
	b.setLabels()
	return b, true
}

// NewBlockWith returns the block with that index, with only these addresses as the party's: its pods have them already. Nobody has the
// others, or they are never given. ok is false if the block would have none of them.
func NewBlockWith(l Layout, index int64, me Party, boot string, addresses []netip.Addr) (_ Block, ok bool) {
	b, ok := NewBlock(l, index, me, boot)
	if !ok {
		return b, false
	}
	var rest []int
	for i := range len(b.Status.Addresses) {
		if !slices.Contains(addresses, b.Address(i)) {
			rest = append(rest, i)
		}
	}
	b = b.Release(me, rest, nil)
	return b, !b.Unused()
}

// Check says what is wrong with a block that the API has answered. Nothing is decided by a wrong one.
func (b Block) Check() error {
	if problem := b.problem(); problem != "" {
		return fmt.Errorf("AddressBlock %s is not as relink writes it: %s", b.Metadata.Name, problem)
	}
	return nil
}

func (b Block) problem() string {
	spec, s := b.Spec, b.Status
	switch n := len(s.Addresses); {
	case b.Metadata.Name != BlockName(spec.Pool, spec.Index):
		return "its spec is of " + BlockName(spec.Pool, spec.Index)
	case spec.Index < 0 || s.Epoch < 1 || s.Epoch > maxEpoch:
		return fmt.Sprintf("index %d, epoch %d", spec.Index, s.Epoch)
	case n == 0 || n > MaxBlockSize || !spec.First.IsValid() || spec.First.Zone() != "" || spec.First.Is4In6() || plus(spec.First, int64(n-1)) != spec.Last:
		return fmt.Sprintf("it has %d characters for the addresses %s", n, b.Span())
	}
	ids, parties := map[byte]bool{Unassigned: true, Excluded: true, Claimed: true}, map[PartyKey]bool{}
	for _, h := range s.Holders {
		if len(h.ID) != 1 || !strings.Contains(letters, h.ID) || ids[h.ID[0]] || h.Store == "" || parties[h.Key()] {
			return fmt.Sprintf("holder %q of node %s", h.ID, h.Node)
		}
		ids[h.ID[0]], parties[h.Key()] = true, true
	}
	for _, w := range s.Want {
		if w.Store == "" || w.Count < 0 { // Nobody gets an address that is not of the block. Anybody can ask for one.
			return fmt.Sprintf("node %s wants %d of it", w.Node, w.Count)
		}
	}
	for i := range len(s.Addresses) {
		if !ids[s.Addresses[i]] {
			return fmt.Sprintf("%s is of %q, who is no holder", b.Address(i), s.Addresses[i:i+1])
		}
	}
	return ""
}

// Address returns the address with that offset.
func (b Block) Address(i int) netip.Addr { return plus(b.Spec.First, int64(i)) }

// Offset returns the place of the address in the block, -1 if it is not in it. A block that somebody has made up has no more addresses than
// characters.
func (b Block) Offset(a netip.Addr) int {
	if i := offset(b.Span(), a); i < len(b.Status.Addresses) {
		return i
	}
	return -1
}

// Span returns all addresses of the block.
func (b Block) Span() Span { return Span{b.Spec.First, b.Spec.Last} }

func offset(s Span, a netip.Addr) int {
	if !s.Contains(a) {
		return -1
	}
	return int(Span{s.First, a}.Size().Int64() - 1)
}

// Holder returns the holder that the party is.
func (b Block) Holder(p Party) (Holder, bool) {
	if i := b.holder(p); i >= 0 {
		return b.Status.Holders[i], true
	}
	return Holder{}, false
}

func (b Block) holder(p Party) int {
	return slices.IndexFunc(b.Status.Holders, func(h Holder) bool { return h.SameParty(p) })
}

// HeldBy says whether the address with that offset is the party's. A fenced party has nothing.
func (b Block) HeldBy(p Party, i int) bool {
	h, ok := b.Holder(p)
	return ok && h.Fenced == "" && b.Status.Addresses[i] == h.ID[0]
}

// HolderOf returns who has the address with that offset, nobody for -1.
func (b Block) HolderOf(i int) (Holder, bool) {
	for _, h := range b.Status.Holders {
		if i >= 0 && h.ID == b.Status.Addresses[i:i+1] {
			return h, true
		}
	}
	return Holder{}, false
}

// Names says whether the node is a holder of the block, or asks for addresses of it.
func (b Block) Names(node string) bool {
	return slices.ContainsFunc(b.Status.Holders, func(h Holder) bool { return h.Node == node }) ||
		slices.ContainsFunc(b.Status.Want, func(w Want) bool { return w.Node == node })
}

// AddressesOf returns the addresses that the node has, also if it is fenced.
func (b Block) AddressesOf(node string) (addresses []netip.Addr) {
	for i := range len(b.Status.Addresses) {
		if h, held := b.HolderOf(i); held && h.Node == node {
			addresses = append(addresses, b.Address(i))
		}
	}
	return addresses
}

// FreeOffsets returns the offsets of the addresses that nobody has.
func (b Block) FreeOffsets() (offsets []int) {
	for i := range len(b.Status.Addresses) {
		if b.Status.Addresses[i] == Unassigned {
			offsets = append(offsets, i)
		}
	}
	return offsets
}

// TakenOffsets returns the offsets of the addresses that nodes have, or that wait for owners.
func (b Block) TakenOffsets() (offsets []int) {
	for i, c := range []byte(b.Status.Addresses) {
		if c != Unassigned && c != Excluded {
			offsets = append(offsets, i)
		}
	}
	return offsets
}

// FencedOffsets returns the offsets of the addresses that fenced parties had. Whoever takes one probes for it.
func (b Block) FencedOffsets() (offsets []int) {
	for i := range len(b.Status.Addresses) {
		if h, ok := b.HolderOf(i); ok && h.Fenced != "" {
			offsets = append(offsets, i)
		}
	}
	return offsets
}

// clone copies what the steps change.
func (b Block) clone() Block {
	b.Status.Holders, b.Status.Want, b.Status.Unproven = slices.Clone(b.Status.Holders), slices.Clone(b.Status.Want), slices.Clone(b.Status.Unproven)
	return b
}

// Take gives the party the addresses with those offsets that no node has, or a fenced one. It returns how many these are. Whoever takes one
// that waits for an owner takes it for that owner.
func (b Block) Take(me Party, offsets []int) (Block, int) {
	b = b.clone()
	n := 0
	for _, i := range offsets {
		h, held := b.HolderOf(i)
		if (h.Fenced != "" || !held && b.Status.Addresses[i] != Excluded) && b.assign(i, me) {
			n++
		}
	}
	b.dropEmptyHolders()
	return b, n
}

// assign makes the address the party's. It is false if the block has no character left for one more holder, or if the party
// is fenced. What a fenced party had is unproven.
func (b *Block) assign(i int, party Party) bool {
	index := b.holder(party)
	if index < 0 {
		id := strings.IndexFunc(letters, func(r rune) bool {
			return !slices.ContainsFunc(b.Status.Holders, func(h Holder) bool { return h.ID == string(r) })
		})
		if id < 0 {
			return false
		}
		index = len(b.Status.Holders)
		b.Status.Holders = append(b.Status.Holders, Holder{ID: letters[id : id+1], Party: party})
	}
	h := &b.Status.Holders[index]
	if h.Fenced != "" {
		return false
	}
	b.noteUnproven(i)
	b.setHolder(i, h.ID[0])
	h.Epoch = b.Status.Epoch
	// It has what it asked for.
	b.Status.Want = slices.DeleteFunc(b.Status.Want, func(w Want) bool { return w.SameParty(party) && w.Address == b.Address(i) })
	return true
}

// noteUnproven notes that a fenced party has had the address, if it has.
func (b *Block) noteUnproven(i int) {
	if previous, _ := b.HolderOf(i); previous.Fenced != "" && !slices.Contains(b.Status.Unproven, b.Address(i)) {
		b.Status.Unproven = append(b.Status.Unproven, b.Address(i))
	}
}

// setHolder makes the address that holder's, and begins a new epoch.
func (b *Block) setHolder(i int, c byte) {
	b.Status.Epoch++
	b.Status.Addresses = b.Status.Addresses[:i] + string(c) + b.Status.Addresses[i+1:]
}

// Request notes that the party wants count addresses, or the address for the claim. It replaces what the party wanted of this kind
// before. Without a count and without a claim, the party wants none of this kind any more.
func (b Block) Request(w Want) Block {
	b = b.clone()
	b.Status.Want = slices.DeleteFunc(b.Status.Want, func(o Want) bool { return o.SameParty(w.Party) && o.Address == w.Address })
	if w.Count > 0 || w.Address.IsValid() && w.Claim != "" {
		b.Status.Want = append(b.Status.Want, w)
	}
	b.setLabels()
	return b
}

// Release takes the addresses with those offsets from the party. A party that asks for one gets it, if its request has not expired. Else nobody
// has it. expired is nil if none has.
func (b Block) Release(me Party, offsets []int, expired func(Want) bool) Block {
	b = b.clone()
	for _, i := range offsets {
		if !b.HeldBy(me, i) {
			continue
		}
		if recipient, ok := b.takeRequest(b.Address(i), me, expired); !ok || !b.assign(i, recipient) {
			b.setHolder(i, Unassigned)
		}
	}
	b.dropEmptyHolders()
	return b
}

// HandOver passes the addresses with those offsets on to another party, which has asked on another block.
func (b Block) HandOver(me Party, offsets []int, recipient Party) Block {
	b = b.clone()
	for _, i := range offsets {
		if b.HeldBy(me, i) && !b.assign(i, recipient) {
			b.setHolder(i, Unassigned)
		}
	}
	b.dropEmptyHolders()
	return b
}

// IsFenced says whether the party is a holder that is proven dead. It gets nothing of the block before it has left.
func (b Block) IsFenced(p Party) bool {
	h, _ := b.Holder(p)
	return h.Fenced != ""
}

// takeRequest returns the party that gets the address, and removes its request: the last party that asked for this address, else the first one
// that asks for any. An owner's next pod is on the node that asked last: it does not start any more where somebody asked earlier.
func (b *Block) takeRequest(a netip.Addr, except Party, expired func(Want) bool) (Party, bool) {
	index := -1
	for i, w := range b.Status.Want {
		switch {
		case w.SameParty(except), b.IsFenced(w.Party), expired != nil && expired(w):
		case w.Address == a, w.Count > 0 && index < 0:
			index = i
		}
	}
	if index < 0 {
		return Party{}, false
	}
	w := &b.Status.Want[index]
	party := w.Party
	if w.Count--; w.Count <= 0 {
		b.Status.Want = slices.Delete(b.Status.Want, index, index+1)
	}
	return party, true
}

// Unfence removes a fenced party from the block: the party knows by now that it has lost its addresses, and none of its pods has one. Those
// that are claimed wait for their owners.
func (b Block) Unfence(me Party, claimed []netip.Addr) Block {
	b = b.clone()
	index := b.holder(me)
	if index < 0 || b.Status.Holders[index].Fenced == "" {
		return b
	}
	for i := range len(b.Status.Addresses) {
		if b.Status.Addresses[i] != b.Status.Holders[index].ID[0] {
			continue
		}
		c := byte(Unassigned)
		if slices.Contains(claimed, b.Address(i)) {
			c = Claimed
		}
		b.setHolder(i, c)
	}
	b.Status.Holders[index].Fenced = ""
	if !slices.ContainsFunc(b.Status.Holders, func(h Holder) bool { return h.Fenced != "" }) {
		b.Status.Unproven = nil
	}
	b.dropEmptyHolders()
	return b
}

// Confirm notes that the party still has in this boot of its node what the block says. A fence that was decided before comes too
// late then: the API refuses it. changed is false if the block says so already, or if the party has nothing of it.
func (b Block) Confirm(me Party, boot string) (_ Block, changed bool) {
	h, held := b.Holder(me)
	if !held || h.Fenced != "" || h.Boot == boot && b.HasNodeUID(me) {
		return b, false
	}
	b = b.clone()
	own := &b.Status.Holders[b.holder(me)]
	own.Boot, own.NodeUID = boot, cmp.Or(me.NodeUID, h.NodeUID)
	return b, true
}

// HasNodeUID says whether the block has the UID of the Node object that the party's node has now. The controller takes out fenced holders of other ones.
func (b Block) HasNodeUID(me Party) bool {
	h, held := b.Holder(me)
	return !held || me.NodeUID == "" || h.NodeUID == me.NodeUID
}

// Fence notes that the parties of the node are proven dead. reason is the proof.
func (b Block) Fence(dead func(Party) bool, reason string) (_ Block, changed bool) {
	b = b.clone()
	for i, h := range b.Status.Holders {
		if dead(h.Party) && h.Fenced == "" {
			b.Status.Epoch++
			b.Status.Holders[i].Fenced, changed = reason, true
		}
	}
	wanted := len(b.Status.Want)
	b.Status.Want = slices.DeleteFunc(b.Status.Want, func(w Want) bool { return dead(w.Party) })
	b.setLabels()
	return b, changed || len(b.Status.Want) < wanted
}

// RemoveDeleted takes the fenced holders out whose node is deleted. Their addresses stay unproven. Those that are claimed wait for the owner, the
// others are nobody's, as those are that have waited and that no owner has any more.
func (b Block) RemoveDeleted(deleted func(Holder) bool, claimed func(netip.Addr) bool) (_ Block, changed bool) {
	removes := func(h Holder) bool { return h.Fenced != "" && deleted(h) }
	if !strings.ContainsRune(b.Status.Addresses, Claimed) && !slices.ContainsFunc(b.Status.Holders, removes) {
		return b, false
	}
	b = b.clone()
	for i := range len(b.Status.Addresses) {
		c := byte(Unassigned)
		if claimed(b.Address(i)) {
			c = Claimed
		}
		h, held := b.HolderOf(i)
		if held && removes(h) || b.Status.Addresses[i] == Claimed && c == Unassigned {
			b.noteUnproven(i)
			b.setHolder(i, c)
			changed = true
		}
	}
	n := len(b.Status.Holders)
	b.Status.Holders = slices.DeleteFunc(b.Status.Holders, removes)
	b.setLabels()
	return b, changed || len(b.Status.Holders) < n
}

// Readmit makes addresses that were excluded when the block was made, and that the pool gives by now, nobody's.
func (b Block) Readmit(l Layout) (_ Block, changed bool) {
	for i := range len(b.Status.Addresses) {
		if b.Status.Addresses[i] == Excluded && l.Assignable(b.Address(i)) {
			b.setHolder(i, Unassigned)
			changed = true
		}
	}
	return b, changed
}

// Unused says that nobody has an address of the block, or has had one that is unproven. It can be deleted.
func (b Block) Unused() bool {
	return len(b.Status.Holders)+len(b.Status.Unproven) == 0 && !strings.ContainsAny(b.Status.Addresses, letters+string(Claimed))
}

// dropEmptyHolders removes holders that have nothing any more. A fenced one stays: the node has not heard of it yet.
func (b *Block) dropEmptyHolders() {
	b.Status.Holders = slices.DeleteFunc(b.Status.Holders, func(h Holder) bool {
		return h.Fenced == "" && !strings.Contains(b.Status.Addresses, h.ID)
	})
	b.setLabels()
}
