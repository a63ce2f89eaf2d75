package lease

import (
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// add is an ADD with the plan's sets.
func (m *model) add(p *plan, r Request) (given []netip.Addr, err error) {
	err = m.settled(func(s *modelState) error {
		before := s.clone()
		r.requestSingles(p)
		for _, a := range r.CandidateAddresses {
			if !p.givesIt(a) {
				return errModel
			}
		}
		for i, a := range r.RequestedAddresses {
			set := p.setOf(a)
			if set < 0 || slices.ContainsFunc(r.RequestedAddresses[:i], func(b netip.Addr) bool { return p.setOf(b) == set }) {
				return errModel
			}
		}
		for i := range p.sets {
			pick := modelPick{m, s, p, i, r}
			a, err := pick.address(before)
			if err != nil {
				return err
			}
			given = append(given, a)
		}
		s.remember(p)
		return nil
	})
	return given, err
}

// requestSingles asks for an address that is the only candidate of its set.
func (r *Request) requestSingles(p *plan) {
	for i := range p.sets {
		of := func(a netip.Addr) bool { return p.setOf(a) == i }
		n := 0
		for _, a := range r.CandidateAddresses {
			if of(a) {
				n++
			}
		}
		if n == 1 && !slices.ContainsFunc(r.RequestedAddresses, of) {
			at := slices.IndexFunc(r.CandidateAddresses, of)
			r.RequestedAddresses = append(slices.Clone(r.RequestedAddresses), r.CandidateAddresses[at])
			r.CandidateAddresses = slices.DeleteFunc(slices.Clone(r.CandidateAddresses), of)
		}
	}
}

// modelPick chooses an address of the set with that number in the plan.
type modelPick struct {
	*model
	s   *modelState
	p   *plan
	set int
	r   Request
}

// address gives an address. The attachment keeps what it held before the ADD.
func (c modelPick) address(before modelState) (netip.Addr, error) {
	wanted := c.wanted()
	for _, a := range everyAddress {
		if slices.Contains(c.p.within[c.set], a) && slices.ContainsFunc(before.leases[a].Holders, isOf(c.r.Attachment)) {
			if list := c.list(); wanted.IsValid() && wanted != a || !wanted.IsValid() && len(list) > 0 && !slices.Contains(list, a) {
				return a, errModel
			}
			if c.isAnotherPods(before.leases[a]) {
				return a, ErrTaken
			}
			c.renew(a)
			return a, nil
		}
	}
	if wanted.IsValid() {
		return c.pickWanted(wanted)
	}
	if list := c.list(); len(list) > 0 {
		return c.pickOneOf(list)
	}
	if a := c.ofOwner(); a.IsValid() {
		c.give(c.s.leases[a], a, FromReservation)
		return a, nil
	}
	if a := c.inTurn(); a.IsValid() {
		return c.fresh(a, InTurn)
	}
	if a := c.longestReleased(); a.IsValid() {
		return c.fresh(a, LongestReleased)
	}
	return netip.Addr{}, ErrExhausted
}

// renew updates the attachment's holder for the sandbox that asks again.
func (c modelPick) renew(a netip.Addr) {
	l := c.s.leases[a]
	l.Holders = slices.Clone(l.Holders)
	for i, h := range l.Holders {
		is := c.r.Namespace
		is.BootID = h.Namespace.BootID
		if !isOf(c.r.Attachment)(h) || is.Inode == 0 || h.Namespace.Same(is) == nil && h.Pod.UID == c.r.Pod.UID {
			continue
		}
		h.Namespace, h.Pod, h.Owner, h.Since = is, c.r.Pod, c.r.APIOwner, c.now()
		if h.Origin == Imported {
			h.Origin = Requested
		}
		l.Holders[i] = h
	}
	c.s.leases[a] = l
}

// wanted returns the address of this set that the request asks for, or the zero Addr for none.
func (c modelPick) wanted() netip.Addr {
	for _, a := range c.r.RequestedAddresses {
		if c.p.setOf(a) == c.set {
			return a
		}
	}
	return netip.Addr{}
}

func (c modelPick) pickWanted(a netip.Addr) (netip.Addr, error) {
	l, leased := c.s.leases[a]
	switch {
	case !c.p.givesIt(a):
		return a, errModel
	case !leased, l.State == Quarantined:
		return c.fresh(a, Requested)
	case c.belongsToRequester(l):
		c.give(l, a, Requested)
		return a, nil
	}
	return a, ErrTaken
}

// list returns the addresses of this set of which the request wants one.
func (c modelPick) list() (list []netip.Addr) {
	for _, a := range c.r.CandidateAddresses {
		if c.p.setOf(a) == c.set {
			list = append(list, a)
		}
	}
	return list
}

func (c modelPick) pickOneOf(list []netip.Addr) (netip.Addr, error) {
	var mine netip.Addr
	for _, a := range everyAddress {
		if slices.Contains(list, a) && c.belongsToRequester(c.s.leases[a]) && (!mine.IsValid() || c.better(c.s.leases[a], c.s.leases[mine])) {
			mine = a
		}
	}
	if mine.IsValid() {
		return c.pickWanted(mine)
	}
	for _, wants := range []func(Lease) bool{
		func(l Lease) bool { return l.State == "" },
		func(l Lease) bool { return l.State == Quarantined && !l.Conflict },
	} {
		for _, a := range list {
			if wants(c.s.leases[a]) {
				return c.pickWanted(a)
			}
		}
	}
	return netip.Addr{}, ErrTaken
}

// isOwner reports whether the lease is kept under one of the names of the request's owner.
func (c modelPick) isOwner(l Lease) bool {
	return owned(l) && (l.Owner == c.r.Owner || l.Owner == c.r.AlternateOwner)
}

// belongsToRequester reports whether a request that names the address gets it from an earlier holder.
func (c modelPick) belongsToRequester(l Lease) bool {
	same := owned(l) && !c.byHand(l) && (c.r.APIOwner != attachment.Owner{} && newest(l).Owner == c.r.APIOwner || c.samePod(l))
	switch {
	case !c.isOwner(l) && !same:
		return false
	case l.State == Reserved:
		return true
	}
	return l.State == Held && c.follows(l) && (same || c.succeeds(l))
}

// samePod reports whether the pod that asks had the address last.
func (c modelPick) samePod(l Lease) bool {
	return c.r.Pod.UID != "" && newest(l).Pod.UID == c.r.Pod.UID
}

// follows reports whether the request is for the same interface of another sandbox than the holders', and the pods may
// have one address.
func (c modelPick) follows(l Lease) bool {
	follows := false
	for _, h := range l.Holders {
		follows = follows || h.IfName == c.r.Attachment.IfName && h.ContainerID != c.r.Attachment.ContainerID
	}
	return follows && !c.besideAnother(l)
}

// besideAnother reports whether another pod of a shared owner has the address. Two of them may not have one.
func (c modelPick) besideAnother(l Lease) bool {
	shared, another := c.r.Policy.Shared, false
	for _, h := range l.Holders {
		shared = shared || h.Policy.Shared
		another = another || !isOf(c.r.Attachment)(h) && !c.thisPod(h.Pod)
	}
	return shared && another
}

// thisPod reports whether the pod is the one that asks, by its UID or by its name.
func (c modelPick) thisPod(p attachment.Pod) bool {
	byName := p.Name != "" && p.Namespace == c.r.Pod.Namespace && p.Name == c.r.Pod.Name
	return byName || p.UID != "" && p.UID == c.r.Pod.UID
}

// keptForSeveral reports whether the address is kept for all pods of an owner.
func keptForSeveral(p Policy) bool { return p.ByOwner && p.Shared }

// isAnotherPods reports whether the attachment holds the address for another pod, and cannot give it to this one.
func (c modelPick) isAnotherPods(l Lease) bool {
	return c.besideAnother(l) && slices.ContainsFunc(l.Holders, func(h Holder) bool { return isOf(c.r.Attachment)(h) && !c.thisPod(h.Pod) })
}

// succeeds reports whether the request comes from the next sandbox of the pod that holds the address.
func (c modelPick) succeeds(l Lease) bool {
	keeps := c.r.Policy.Sticky || newest(l).Policy.Sticky || c.byHand(l)
	return l.State == Held && c.isOwner(l) && keeps && c.follows(l)
}

// ofOwner returns the best address for the owner. Either it is reserved for the owner, or the owner's earlier sandbox
// has it.
func (c modelPick) ofOwner() netip.Addr {
	var best netip.Addr
	for _, a := range everyAddress {
		l := c.s.leases[a]
		if !c.isOwner(l) || !slices.Contains(c.p.gives[c.set], a) || l.State == Held && !c.succeeds(l) || l.State == Quarantined {
			continue
		}
		if !best.IsValid() || c.better(l, c.s.leases[best]) {
			best = a
		}
	}
	return best
}

// better reports whether a comes before b. b has the lower address.
func (c modelPick) better(a, b Lease) bool {
	if x, y := c.class(a), c.class(b); x != y {
		return x < y
	}
	since := func(l Lease) time.Time {
		if c.byHand(l) {
			return l.ByHandAt
		}
		return time.Time{}
	}
	for _, when := range []func(Lease) time.Time{
		since, func(l Lease) time.Time { return l.ReleasedAt }, func(l Lease) time.Time { return newest(l).Since },
	} {
		if !when(a).Equal(when(b)) {
			return when(a).After(when(b))
		}
	}
	return false
}

// class orders the addresses for an owner: those reserved by hand, those that the earlier sandbox still has, those that this
// interface had, then the rest.
func (c modelPick) class(l Lease) string {
	had := newest(l).IfName
	switch {
	case c.byHand(l) && (had == "" || had == c.r.Attachment.IfName):
		return "1 by hand"
	case c.r.Policy.Shared && had == c.r.Attachment.IfName && c.thisPod(newest(l).Pod):
		return "1 by hand"
	case l.State == Held:
		return "2 held"
	case l.State == Reserved && had == c.r.Attachment.IfName:
		return "3 of the interface"
	}
	return "4 of another interface"
}

// inTurn returns the first free address after the one that was given last.
func (c modelPick) inTurn() netip.Addr {
	within := c.p.within[c.set]
	at := slices.Index(within, c.s.last[c.set]) + 1
	for i := range within {
		a := within[(at+i)%len(within)]
		if _, leased := c.s.leases[a]; !leased && slices.Contains(c.p.gives[c.set], a) {
			return a
		}
	}
	return netip.Addr{}
}

// longestReleased returns the address whose quarantine ends first.
func (c modelPick) longestReleased() netip.Addr {
	var first netip.Addr
	for _, a := range everyAddress {
		l := c.s.leases[a]
		if l.State != Quarantined || l.Conflict || !slices.Contains(c.p.gives[c.set], a) {
			continue
		}
		if !first.IsValid() || l.Until.Before(c.s.leases[first].Until) {
			first = a
		}
	}
	return first
}

// fresh gives an address without using anything of an earlier lease.
func (c modelPick) fresh(a netip.Addr, origin Origin) (netip.Addr, error) {
	c.s.last[c.set] = a
	c.give(Lease{}, a, origin)
	return a, nil
}

func (c modelPick) give(was Lease, a netip.Addr, origin Origin) {
	owner := c.r.Owner
	if c.byHand(was) {
		owner = was.Owner
	}
	l := Lease{
		Address: a, Network: "pods", Owner: owner, State: Held, Holders: slices.Clone(was.Holders),
		ByHand: was.ByHand, ByHandAt: was.ByHandAt, ByHandUntil: was.ByHandUntil, Unknown: was.Unknown,
	}
	if was.State == Held {
		origin, l.Conflict = TakenOver, was.Conflict
	}
	h := Holder{
		ContainerID: c.r.Attachment.ContainerID, IfName: c.r.Attachment.IfName, Pod: c.r.Pod, Owner: c.r.APIOwner,
		Namespace: c.r.Namespace, Since: c.now(), Origin: origin, Policy: c.r.Policy,
	}
	h.Namespace.BootID = c.bootID
	l.Holders = append(l.Holders, h)
	c.s.leases[a] = l
	switch {
	case !owned(l):
	case !keptForSeveral(c.r.Policy):
		c.endOtherReservations(a)
	case was.State == "":
		c.endOneReservation(a)
	}
}

// endOtherReservations ends the owner's other reservations for this interface, because it has an address now.
func (c modelPick) endOtherReservations(given netip.Addr) {
	for _, l := range c.otherReservations(given) {
		c.unreserve(c.s, l)
	}
}

// endOneReservation ends the one of them that the owner would have been given.
func (c modelPick) endOneReservation(given netip.Addr) {
	var best Lease
	for _, l := range c.otherReservations(given) {
		if best.State == "" || c.better(l, best) {
			best = l
		}
	}
	if best.State != "" {
		c.unreserve(c.s, best)
	}
}

// otherReservations are the owner's other reservations for this interface, of the same sort.
func (c modelPick) otherReservations(given netip.Addr) (all []Lease) {
	for _, a := range everyAddress {
		l := c.s.leases[a]
		if slices.Contains(c.p.within[c.set], a) && a != given && c.isOwner(l) && l.State == Reserved && !c.byHand(l) &&
			l.Last.IfName == c.r.Attachment.IfName && keptForSeveral(l.Last.Policy) == keptForSeveral(c.r.Policy) {
			all = append(all, l)
		}
	}
	return all
}

// available reports whether an ADD with the plan could give anybody an address of the set.
func (m *model) available(p *plan, set int) bool {
	leases := m.current()
	return slices.ContainsFunc(p.gives[set], func(a netip.Addr) bool {
		l, leased := leases[a]
		return !leased || l.State == Reserved && l.Owner != (attachment.Owner{}) || l.State == Quarantined && !l.Conflict
	})
}
