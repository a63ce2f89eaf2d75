package pool

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
)

// Limits of a pool.
const (
	// DefaultBlockSize and MaxBlockSize are numbers of addresses.
	DefaultBlockSize = 16
	MaxBlockSize     = 64
	// MaxName is the longest name of a pool: a block's and a claim's name have more.
	MaxName = 200
	// MaxBlocks bounds the blocks of a pool: an IPv6 subnet has more addresses than anybody can give.
	MaxBlocks = 1 << 20
	// Finalizer keeps a pool as long as a node has addresses of it.
	Finalizer = Group + "/blocks"
)

// Pool is an AddressPool. People write its spec.
type Pool struct {
	Metadata Meta   `json:"metadata"`
	Spec     Spec   `json:"spec"`
	Status   Status `json:"status,omitzero"`
}

// HasFinalizer says whether the pool stays until no node has an address of it.
func (p Pool) HasFinalizer() bool { return slices.Contains(p.Metadata.Finalizers, Finalizer) }

// Spec says which addresses the pool has, and what pods get with them. They are of one subnet.
//
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || !isIP(self.gateway) || !isCIDR(self.subnet) || ip(self.gateway).family() == cidr(self.subnet).ip().family() && (cidr(self.subnet).containsIP(self.gateway) || ip(self.gateway).isLinkLocalUnicast())",message="the gateway must be an address of the subnet",messageExpression=`'the gateway ' + self.gateway + ' must be an address of the subnet ' + self.subnet`,fieldPath=".gateway"
// +kubebuilder:validation:XValidation:rule=`!has(self.ranges) || !isCIDR(self.subnet) || self.ranges.all(r, isCIDR(r) ? cidr(self.subnet).containsCIDR(r) : r.split('-').all(a, !isIP(a) || cidr(self.subnet).containsIP(a)))`,message="ranges must be parts of the subnet",messageExpression=`'ranges must be parts of the subnet ' + self.subnet`,fieldPath=".ranges"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.ranges) == has(self.ranges)",message="without ranges, the pool is the whole subnet, and gets none later; with ranges, it always has some",fieldPath=".ranges"
// +kubebuilder:validation:XValidation:rule="self.blockSize == oldSelf.blockSize",message="blockSize never changes: make another pool",fieldPath=".blockSize"
// +kubebuilder:validation:XValidation:rule="has(self.segment) == has(oldSelf.segment)",message="segment never changes: make another pool",fieldPath=".segment"
type Spec struct {
	// Subnet is the network that the addresses are of, such as 10.3.0.0/24. It never changes.
	//
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="must be a network such as 10.3.0.0/24"
	// +kubebuilder:validation:XValidation:rule=`!isCIDR(self) || !['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '255.255.255.255/32', '::/8', 'fe80::/10', 'ff00::/8'].exists(n, cidr(n).containsCIDR(self) || cidr(self).containsCIDR(n))`,message="must have no address of the reserved networks 0.0.0.0/8, 127.0.0.0/8, 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255/32, ::/8, fe80::/10, ff00::/8"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="subnet never changes: make another pool"
	Subnet string `json:"subnet"`
	// Ranges are parts of the subnet, such as 10.3.0.10-10.3.0.250. More can be added at the end. Without any, it is the
	// whole subnet.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=79
	// +kubebuilder:validation:items:XValidation:rule=`isCIDR(self) ? cidr(self) == cidr(self).masked() : self.split('-').size() <= 2 && self.split('-').all(a, isIP(a)) && self.contains('.') != self.contains(':')`,message="must be an address, a network, or two addresses such as 10.3.0.10-10.3.0.19"
	// +listType=atomic
	Ranges []string `json:"ranges,omitempty"`
	// Exclude are addresses that nobody gets, in the forms of relink-ipam's key.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=79
	// +kubebuilder:validation:items:XValidation:rule=`isCIDR(self) ? cidr(self) == cidr(self).masked() : self.split('-').size() <= 2 && self.split('-').all(a, isIP(a)) && self.contains('.') != self.contains(':')`,message="must be an address, a network, or two addresses such as 10.3.0.10-10.3.0.19"
	// +listType=atomic
	Exclude []string `json:"exclude,omitempty"`
	// Gateway is the pods' default gateway. No pod gets its address.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an address of the subnet"
	Gateway string `json:"gateway,omitempty"`
	// Routes are what pods get with an address.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Routes []Route `json:"routes,omitempty"`
	// BlockSize is the number of addresses of a block. It never changes.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:default=16
	BlockSize int `json:"blockSize,omitempty"`
	// Paused: nobody takes anything new from the pool. What nodes have, they give.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`
	// NodeSelector are labels. Only nodes that have all of them take anything new of the pool. Without any, all nodes do.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Segment names the network segment of the addresses. Pools of different segments may have the same addresses. It never changes.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="segment never changes: make another pool"
	Segment string `json:"segment,omitempty"`
}

// Route is a route of a pod.
type Route struct {
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be a network such as 10.8.0.0/16"
	Dst string `json:"dst"`
	// +optional
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an address"
	GW string `json:"gw,omitempty"`
}

// Status is what the controller has counted, a hint by which alone nothing is decided, and the Recovery.
type Status struct {
	// Blocks is how many blocks the pool has.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Blocks int64 `json:"blocks"`
	// Existing, taken in the API, is how many of the blocks exist.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Existing int64 `json:"taken"`
	// Addresses is how many addresses can be given.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:Pattern=`^[0-9]+$`
	Addresses string `json:"addresses,omitempty"`
	// Granted is how many of the addresses nodes have, and owners of deleted nodes.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Granted int64 `json:"granted"`
	// Free has a bit for each of the first blocks, in base64: 1 for a block that does not exist.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=174764
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]*=*$`
	Free string `json:"free,omitempty"`
	// Sequence grows with each change of the status. A node that has seen a greater one knows that the API has lost something.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Sequence int64 `json:"sequence,omitempty"`
	// Recovery is nil unless the API has lost something. Agents begin it, and write themselves into it. The controller ends it.
	//
	// +optional
	Recovery *Recovery `json:"recovery,omitempty"`
	// Conditions are what holds of the pool, one of each type.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// Updated is when the controller has counted.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Updated string `json:"updated,omitempty"`
	// ObservedGeneration is the generation of the pool before the blocks were counted.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Span is all addresses from First to Last, both of one family.
type Span struct {
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"`
}

// Contains says whether the address is in the span.
func (s Span) Contains(a netip.Addr) bool {
	return a.BitLen() == s.First.BitLen() && !a.Less(s.First) && !s.Last.Less(a)
}

// Overlaps says whether the spans have an address in common.
func (s Span) Overlaps(o Span) bool {
	return s.First.BitLen() == o.First.BitLen() && !s.Last.Less(o.First) && !o.Last.Less(s.First)
}

// String returns the span as people write it.
func (s Span) String() string {
	if s.First == s.Last {
		return s.First.String()
	}
	return s.First.String() + "-" + s.Last.String()
}

// Layout is what a pool's spec comes to.
type Layout struct {
	Name   string       `json:"name"`
	UID    string       `json:"uid"`
	Subnet netip.Prefix `json:"subnet"`
	// Gateway is the zero Addr for none.
	Gateway netip.Addr `json:"gateway"`
	Ranges  []Span     `json:"ranges"`
	Exclude []Span     `json:"exclude"`
	Routes  []Route    `json:"routes"`
	// BlockSize is the number of addresses of a block, but for the last of each range.
	BlockSize int `json:"blockSize"`
	// Unneeded says that the node gives back what no pod has: somebody has deleted the pool, or it is not for this node.
	Unneeded bool `json:"unneeded"`
}

// Layout reads the spec. The error names the key, the value and what to do.
func (p Pool) Layout() (Layout, error) {
	l := Layout{Name: p.Metadata.Name, UID: p.Metadata.UID, Routes: p.Spec.Routes, BlockSize: cmp.Or(p.Spec.BlockSize, DefaultBlockSize), Unneeded: p.Metadata.DeletionTimestamp != ""}
	if err := l.parse(p.Spec); err != nil {
		return Layout{}, fmt.Errorf("AddressPool %s: %w", p.Metadata.Name, err)
	}
	return l, nil
}

// invalid is the error of a key.
func invalid(key, value, problem string) error {
	return fmt.Errorf("invalid spec.%s %q: %s", key, value, problem)
}

func (l *Layout) parse(s Spec) (err error) {
	if l.Subnet, err = parseSubnet(s); err != nil {
		return invalid("subnet", s.Subnet, err.Error())
	}
	if l.BlockSize < 1 || l.BlockSize > MaxBlockSize {
		return invalid("blockSize", fmt.Sprint(s.BlockSize), fmt.Sprintf("must be between 1 and %d", MaxBlockSize))
	}
	if len(l.Name) > MaxName {
		return fmt.Errorf("invalid name: it must have at most %d characters", MaxName)
	}
	if s.Gateway != "" {
		if l.Gateway, err = netip.ParseAddr(s.Gateway); err != nil || !canBeGateway(l.Gateway, l.Subnet) {
			return invalid("gateway", s.Gateway, "must be an address of the subnet "+s.Subnet)
		}
	}
	if err := checkRoutes(s.Routes); err != nil {
		return err
	}
	return l.parseSpans(s)
}

// checkRoutes says which route cannot be read, and why.
func checkRoutes(routes []Route) error {
	for i, r := range routes {
		key := fmt.Sprintf("routes[%d]", i)
		dst, err := netip.ParsePrefix(r.Dst)
		if err != nil {
			return invalid(key+".dst", r.Dst, "must be a network such as 10.0.0.0/8")
		}
		gw, err := netip.ParseAddr(r.GW)
		switch {
		case r.GW == "":
		case err != nil:
			return invalid(key+".gw", r.GW, "must be an address")
		case gw.Is4() != dst.Addr().Is4():
			return invalid(key+".gw", r.GW, "must be of the family of dst "+r.Dst)
		}
	}
	return nil
}

// canBeGateway says whether pods of the subnet can reach it. A link-local gateway can be reached on every link.
func canBeGateway(a netip.Addr, subnet netip.Prefix) bool {
	if a.Zone() != "" || a.Is4In6() || a.Is4() != subnet.Addr().Is4() {
		return false
	}
	return subnet.Contains(a) || a.IsLinkLocalUnicast()
}

// ParseSpan reads an address, a network, or two addresses with a hyphen.
func ParseSpan(text string) (Span, error) {
	if p, err := netip.ParsePrefix(text); err == nil && p.Masked() == p && !p.Addr().Is4In6() {
		return Span{p.Addr(), lastAddr(p)}, nil
	}
	firstText, lastText, isRange := strings.Cut(text, "-")
	if !isRange {
		lastText = firstText
	}
	first, err := netip.ParseAddr(firstText)
	last, err2 := netip.ParseAddr(lastText)
	if errors.Join(err, err2) != nil || first.BitLen() != last.BitLen() || first.Zone()+last.Zone() != "" || first.Is4In6() || last.Is4In6() || last.Less(first) {
		return Span{}, fmt.Errorf("%q is no span of addresses", text)
	}
	return Span{first, last}, nil
}

// hostSpan are the addresses of the subnet that a host can have, as host-local has them: not the network's own and, for IPv4,
// not the broadcast address.
func hostSpan(p netip.Prefix) Span {
	s := Span{p.Addr(), lastAddr(p)}
	if p.Addr().BitLen()-p.Bits() < 2 {
		return s
	}
	s.First = s.First.Next()
	if p.Addr().Is4() {
		s.Last = s.Last.Prev()
	}
	return s
}

func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Blocks returns how many blocks the pool has.
func (l Layout) Blocks() int64 {
	var n int64
	for _, r := range l.Ranges {
		n = min(MaxBlocks, n+l.blocksOf(r))
	}
	return n
}

func (l Layout) blocksOf(r Span) int64 {
	n := r.Size()
	n.Add(n, big.NewInt(int64(l.BlockSize-1)))
	n.Div(n, big.NewInt(int64(l.BlockSize)))
	if !n.IsInt64() || n.Int64() > MaxBlocks {
		return MaxBlocks
	}
	return n.Int64()
}

// Size returns how many addresses the span has: a subnet of IPv6 has more than an integer can count.
func (s Span) Size() *big.Int {
	first, last := s.First.As16(), s.Last.As16()
	n := new(big.Int).Sub(new(big.Int).SetBytes(last[:]), new(big.Int).SetBytes(first[:]))
	return n.Add(n, big.NewInt(1))
}

// Block returns the addresses of the block with that index. ok is false if the pool has no such block.
func (l Layout) Block(index int64) (s Span, ok bool) {
	if index < 0 || index >= l.Blocks() {
		return Span{}, false
	}
	for _, r := range l.Ranges {
		n := l.blocksOf(r)
		if index >= n {
			index -= n
			continue
		}
		first := plus(r.First, index*int64(l.BlockSize))
		last := plus(first, int64(l.BlockSize-1))
		if !last.IsValid() || r.Last.Less(last) || last.Less(first) {
			last = r.Last
		}
		return Span{first, last}, true
	}
	return Span{}, false
}

// HasBlock says whether the block is one of the pool's blocks.
func (l Layout) HasBlock(b Block) bool {
	span, ok := l.Block(b.Spec.Index)
	return ok && span == b.Span()
}

// Index returns the block that has the address. ok is false if none has.
func (l Layout) Index(a netip.Addr) (index int64, ok bool) {
	for _, r := range l.Ranges {
		if !r.Contains(a) {
			index += l.blocksOf(r)
			continue
		}
		n := Span{r.First, a}.Size()
		n.Sub(n, big.NewInt(1)).Div(n, big.NewInt(int64(l.BlockSize)))
		if !n.IsInt64() || n.Int64() >= MaxBlocks {
			return 0, false
		}
		index += n.Int64()
		return index, index < l.Blocks()
	}
	return 0, false
}

// plus returns the n-th address after a, the zero Addr if there is none.
func plus(a netip.Addr, n int64) netip.Addr {
	b := a.As16()
	sum := new(big.Int).Add(new(big.Int).SetBytes(b[:]), big.NewInt(n))
	if sum.BitLen() > 128 {
		return netip.Addr{}
	}
	r := netip.AddrFrom16([16]byte(sum.FillBytes(b[:])))
	if a.Is4() {
		if !r.Is4In6() {
			return netip.Addr{}
		}
		return r.Unmap()
	}
	return r
}

// Excluded says whether nobody gets the address.
func (l Layout) Excluded(a netip.Addr) bool {
	return a == l.Gateway || slices.ContainsFunc(l.Exclude, func(e Span) bool { return e.Contains(a) })
}

// Assignable says whether the pool has the address, and pods can get it.
func (l Layout) Assignable(a netip.Addr) bool {
	_, ok := l.Index(a)
	return ok && !l.Excluded(a)
}

// AnyAssignable says whether any address of the span, which is a block's, can be given.
func (l Layout) AnyAssignable(s Span) bool {
	for a := s.First; s.Contains(a); a = a.Next() {
		if !l.Excluded(a) {
			return true
		}
	}
	return false
}

// Addresses returns how many addresses of the pool can be given.
func (l Layout) Addresses() *big.Int {
	n := new(big.Int)
	for _, r := range l.Ranges {
		n.Add(n, r.Size())
		for _, e := range r.Intersect(append(slices.Clone(l.Exclude), Span{l.Gateway, l.Gateway})) {
			n.Sub(n, e.Size())
		}
	}
	return n
}

// Exhausted says whether each address that the pool gives is a node's or an owner's. blocks are all blocks of the pool.
func (l Layout) Exhausted(blocks []Block) bool {
	count := int64(0)
	for _, b := range blocks {
		for _, i := range b.TakenOffsets() {
			if l.Assignable(b.Address(i)) {
				count++
			}
		}
	}
	return l.Addresses().Cmp(big.NewInt(count)) <= 0
}

// Intersect returns what the spans have of this one, in order and without overlaps. A span of zero Addrs is none.
func (s Span) Intersect(spans []Span) []Span {
	var parts []Span
	for _, o := range spans {
		if o.First.IsValid() && s.Overlaps(o) {
			parts = append(parts, Span{slices.MaxFunc([]netip.Addr{o.First, s.First}, netip.Addr.Compare), slices.MinFunc([]netip.Addr{o.Last, s.Last}, netip.Addr.Compare)})
		}
	}
	slices.SortFunc(parts, func(a, b Span) int { return a.First.Compare(b.First) })
	var merged []Span
	for _, o := range parts {
		if n := len(merged); n > 0 && !merged[n-1].Last.Less(o.First) {
			if last := &merged[n-1].Last; last.Less(o.Last) {
				*last = o.Last
			}
			continue
		}
		merged = append(merged, o)
	}
	return merged
}
