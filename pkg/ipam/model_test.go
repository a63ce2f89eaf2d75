package ipam

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// model is what a store does, told by looking at every address: no index, no runs.
type model struct {
	now    time.Time
	bootID string
	state  modelState
}

// modelState is what a store has on disk.
type modelState struct {
	bootID string
	last   netip.Addr
	leases map[netip.Addr]Lease
}

func (s modelState) clone() modelState {
	leases := map[netip.Addr]Lease{}
	for a, l := range s.leases {
		leases[a] = l
	}
	s.leases = leases
	return s
}

// pool is small, so that everything meets: five addresses in two ranges, between them
// the gateway and an excluded one.
var pool = RangeSet{
	{Span: span("10.0.0.2", "10.0.0.6"), Gateway: addr("10.0.0.4"), Excluded: []Span{span("10.0.0.5", "10.0.0.5")}, Subnet: netip.MustParsePrefix("10.0.0.0/24")},
	{Span: span("10.0.1.1", "10.0.1.2"), Gateway: addr("10.0.1.9"), Subnet: netip.MustParsePrefix("10.0.1.0/24")},
}

// inPool are the addresses that can be given, in order.
var inPool = []netip.Addr{addr("10.0.0.2"), addr("10.0.0.3"), addr("10.0.0.6"), addr("10.0.1.1"), addr("10.0.1.2")}

// settled is change after what nobody has any more is free.
func (m *model) settled(f func(*modelState) error) error {
	return m.change(func(s *modelState) error {
		*s = m.booted()
		for a, l := range s.leases {
			if m.over(l) {
				delete(s.leases, a)
			}
		}
		return f(s)
	})
}

// change is Store.update: all or nothing.
func (m *model) change(f func(*modelState) error) error {
	s := m.state.clone()
	if err := f(&s); err != nil {
		return err
	}
	m.state = s
	return nil
}

// booted is the state once nothing of an earlier boot is held any more.
func (m *model) booted() modelState {
	s := m.state.clone()
	if s.bootID != m.bootID {
		for a, l := range s.leases {
			if l.State == Held && l.BootID != m.bootID {
				m.giveUp(&s, a)
			}
		}
		s.bootID = m.bootID
	}
	return s
}

func (m *model) giveUp(s *modelState, a netip.Addr) {
	l := s.leases[a]
	l.ReleasedAt = m.now
	if l.Conflict {
		l.Policy.Quarantine = max(l.Policy.Quarantine, DefaultQuarantine)
	}
	if !l.ByHandUntil.IsZero() && !l.ByHandUntil.After(m.now) {
		l.ByHand, l.ByHandUntil = false, time.Time{}
	}
	owned := l.Owner != attachment.Owner{}
	ends := []time.Time{m.now.Add(l.Policy.Quarantine), l.ByHandUntil}
	if l.Policy.Sticky {
		ends = append(ends, m.now.Add(l.Policy.Retain))
	}
	switch {
	case owned && (l.ByHand && l.ByHandUntil.IsZero() || l.Policy.Sticky && l.Policy.Retain == 0):
		l.State, l.Until, l.Conflict = Reserved, time.Time{}, false
	case owned && (l.ByHand || l.Policy.Sticky):
		l.State, l.Until, l.Conflict = Reserved, slices.MaxFunc(ends, time.Time.Compare), false
	case l.Policy.Quarantine > 0:
		l.State, l.Until = Quarantined, ends[0]
	default:
		delete(s.leases, a)
		return
	}
	s.leases[a] = l
}

func (m *model) over(l Lease) bool { return !l.Until.IsZero() && !l.Until.After(m.now) }

func (m *model) add(r request) (given netip.Addr, err error) {
	err = m.settled(func(s *modelState) error {
		var turn bool
		if given, turn, err = m.pick(s, r); err != nil {
			return err
		}
		if turn {
			s.last = given
		}
		if s.leases[given].HeldBy(r.attachment) {
			return nil
		}
		policy := r.policy
		if was := s.leases[given]; was.State == Held && was.Policy.Sticky && !policy.Sticky {
			policy = was.Policy
		}
		origin := InTurn
		if was := s.leases[given]; was.State == Held {
			origin = TakenOver
		} else if len(r.requested) > 0 || was.State == Reserved {
			origin = Requested
		}
		s.leases[given] = Lease{
			Address: given, Attachment: r.attachment, Owner: r.owner, State: Held, Origin: origin, Policy: policy,
			ByHand: s.leases[given].ByHand, ByHandUntil: s.leases[given].ByHandUntil, BootID: m.bootID,
		}
		return nil
	})
	return given, err
}

var errModel = errors.New("refused")

// pick says which address the attachment gets, and whether the next one follows on it.
func (m *model) pick(s *modelState, r request) (netip.Addr, bool, error) {
	for _, a := range inPool {
		if s.leases[a].HeldBy(r.attachment) {
			if len(r.requested) > 0 && r.requested[0].address != a {
				return a, false, errModel
			}
			return a, false, nil
		}
	}
	if len(r.requested) > 0 {
		return m.pickRequested(s, r)
	}
	succeeds := func(l Lease) bool { return m.succeeds(l, r) }
	for _, fits := range []func(Lease) bool{
		func(l Lease) bool { return l.State == Reserved && l.Attachment.IfName == r.attachment.IfName },
		succeeds,
		func(l Lease) bool { return l.State == Reserved },
	} {
		var best netip.Addr
		for _, a := range inPool {
			l := s.leases[a]
			if r.owner != (attachment.Owner{}) && l.Owner == r.owner && fits(l) && (!best.IsValid() || l.ReleasedAt.After(s.leases[best].ReleasedAt)) {
				best = a
			}
		}
		if best.IsValid() {
			return best, false, nil
		}
	}
	at := slices.Index(inPool, s.last) + 1
	for i := range inPool {
		a := inPool[(at+i)%len(inPool)]
		if _, leased := s.leases[a]; !leased {
			return a, true, nil
		}
	}
	var first netip.Addr
	for _, a := range inPool {
		if l := s.leases[a]; l.State == Quarantined && !l.Conflict && (!first.IsValid() || l.Until.Before(s.leases[first].Until)) {
			first = a
		}
	}
	if !first.IsValid() {
		return first, false, errModel
	}
	return first, true, nil
}

func (m *model) pickRequested(s *modelState, r request) (netip.Addr, bool, error) {
	a := r.requested[0].address
	l, leased := s.leases[a]
	switch {
	case !slices.Contains(inPool, a):
		return a, false, errModel
	case !leased, l.State == Quarantined:
		return a, true, nil
	case l.State == Reserved && l.Owner == r.owner, m.succeeds(l, r):
		return a, false, nil
	}
	return a, false, errModel
}

func (m *model) succeeds(l Lease, r request) bool {
	return l.State == Held && (r.policy.Sticky || l.Policy.Sticky || l.ByHand && (l.ByHandUntil.IsZero() || l.ByHandUntil.After(m.now))) && r.owner != (attachment.Owner{}) && l.Owner == r.owner &&
		l.Attachment.IfName == r.attachment.IfName && l.Attachment.ContainerID != r.attachment.ContainerID
}

func (m *model) releaseIf(gone func(Lease) bool) error {
	return m.change(func(s *modelState) error {
		for a, l := range s.leases {
			if l.State == Held && gone(l) {
				m.giveUp(s, a)
			}
		}
		return nil
	})
}

func (m *model) reserve(a netip.Addr, o attachment.Owner, retain time.Duration) error {
	return m.settled(func(s *modelState) error {
		l, leased := s.leases[a]
		var until time.Time
		if retain > 0 {
			until = m.now.Add(retain)
		}
		switch {
		case leased && l.State != Quarantined && l.Owner != o:
			return errModel
		case leased && l.State == Held:
			l.ByHand, l.ByHandUntil = true, until
			s.leases[a] = l
			return nil
		case leased && l.State == Reserved:
			if retain > 0 && (l.Until.IsZero() || l.Until.After(until)) {
				until = l.Until
			}
		case leased:
			l.Attachment, l.Policy = attachment.Key{Network: "pods"}, Policy{Quarantine: l.Policy.Quarantine}
			if retain > 0 && l.Until.After(until) {
				until = l.Until
			}
		default:
			l = Lease{Address: a, Attachment: attachment.Key{Network: "pods"}, ReleasedAt: m.now}
		}
		l.Owner, l.State, l.ByHand, l.ByHandUntil, l.Until = o, Reserved, true, until, until
		s.leases[a] = l
		return nil
	})
}

func (m *model) conflict(key attachment.Key, a netip.Addr) error {
	refused := false
	err := m.change(func(s *modelState) error {
		l := s.leases[a]
		switch {
		case !l.HeldBy(key):
			return errModel
		case l.Origin == TakenOver:
			return nil
		case l.ByHand || l.Origin != InTurn:
			l.Conflict, refused = true, true
			s.leases[a] = l
			return nil
		}
		l.Conflict, l.Owner = true, attachment.Owner{}
		s.leases[a] = l
		m.giveUp(s, a)
		return nil
	})
	if refused {
		return errModel
	}
	return err
}

// release is by hand.
func (m *model) release(a netip.Addr) error {
	return m.settled(func(s *modelState) error {
		l, leased := s.leases[a]
		if !leased {
			return errModel
		}
		quarantine := l.ReleasedAt.Add(l.Policy.Quarantine)
		switch {
		case l.State == Reserved && quarantine.After(m.now):
			l.ByHand, l.ByHandUntil, l.Policy.Sticky, l.State, l.Until = false, time.Time{}, false, Quarantined, quarantine
			s.leases[a] = l
			return nil
		case l.State != Held:
			delete(s.leases, a)
			return nil
		}
		l.ByHand, l.ByHandUntil, l.Policy.Sticky = false, time.Time{}, false
		s.leases[a] = l
		m.giveUp(s, a)
		return nil
	})
}

// list is what Store.List returns, as far as the model knows it.
func (m *model) list() []Lease {
	var all []Lease
	leases := m.booted().leases
	for _, a := range inPool {
		if l, leased := leases[a]; leased && !m.over(l) {
			all = append(all, l)
		}
	}
	return all
}
