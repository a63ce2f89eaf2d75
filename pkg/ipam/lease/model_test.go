package lease

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// model does what a store does. It looks at every address, without any index and without runs.
type model struct {
	// day is the time of day, uptime the time since the boot.
	day    time.Time
	uptime time.Duration
	bootID string
	state  modelState
}

// modelState is the content of a store on disk.
type modelState struct {
	// future says that a newer relink has added to the store.
	future bool
	// bootID is the boot of the last ADD.
	bootID string
	mark   clockMark
	last   map[int]netip.Addr
	leases map[netip.Addr]Lease
	// known are the ranges that the last ADD asked for, none before the first one.
	known []*plan
}

func (s modelState) clone() modelState {
	leases, last := map[netip.Addr]Lease{}, map[int]netip.Addr{}
	for a, l := range s.leases {
		leases[a] = l
	}
	for i, a := range s.last {
		last[i] = a
	}
	s.leases, s.last, s.known = leases, last, slices.Clone(s.known)
	return s
}

// errModel is a refusal without an error of its own. errSame is a change that has nothing to do.
var (
	errModel = errors.New("refused")
	errSame  = errors.New("same")
)

// now is the time of the store. Within a boot it follows the uptime.
func (m *model) now() time.Time {
	mark := m.state.mark
	switch {
	case mark.Time.IsZero():
		return m.day
	case mark.BootID == m.bootID:
		return mark.Time.Add(m.uptime - mark.Uptime)
	case mark.Time.After(m.day):
		return mark.Time
	}
	return m.day
}

// change applies all of f's changes, or none.
func (m *model) change(f func(*modelState) error) error {
	s := m.state.clone()
	if err := f(&s); err != nil {
		if errors.Is(err, errSame) {
			return nil
		}
		return err
	}
	s.mark = clockMark{Time: m.now(), Uptime: m.uptime, BootID: m.bootID}
	m.state = s
	return nil
}

// settled is like change, but first it frees what nobody has any more.
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

// booted returns the state after everything from an earlier boot is given up.
func (m *model) booted() modelState {
	s := m.state.clone()
	if s.bootID == m.bootID {
		return s
	}
	for a := range s.leases {
		m.giveUp(&s, a, func(h Holder) bool { return h.Namespace.BootID != m.bootID })
	}
	s.bootID = m.bootID
	return s
}

func (m *model) over(l Lease) bool { return !l.Until.IsZero() && !l.Until.After(m.now()) }

// byHand reports whether an operator's reservation is in force.
func (m *model) byHand(l Lease) bool {
	return l.ByHand && (l.ByHandUntil.IsZero() || l.ByHandUntil.After(m.now()))
}

func notByHand(l *Lease) { l.ByHand, l.ByHandAt, l.ByHandUntil = false, time.Time{}, time.Time{} }

func owned(l Lease) bool { return l.Owner != attachment.Owner{} }

// newest returns the holder that got the address last.
func newest(l Lease) Holder {
	if len(l.Holders) == 0 {
		return l.Last
	}
	return l.Holders[len(l.Holders)-1]
}

// giveUp removes the holders that are gone from the lease of the address.
func (m *model) giveUp(s *modelState, a netip.Addr, gone func(Holder) bool) {
	l := s.leases[a]
	left := slices.DeleteFunc(slices.Clone(l.Holders), gone)
	if len(left) == len(l.Holders) {
		return
	}
	if len(left) > 0 {
		l.Holders = left
		s.leases[a] = l
		return
	}
	l.Last, l.Holders = newest(l), nil
	if !m.byHand(l) {
		if l.ByHand && l.Last.Policy.ByOwner {
			l.Owner = l.Last.Owner
		}
		notByHand(&l)
		// Nobody would ever ask for it, because the owner has another address.
		l.Last.Policy.Sticky = l.Last.Policy.Sticky && !m.hasAnother(s, l)
	}
	m.afterLastHolder(s, l)
}

// hasAnother reports whether the owner holds another address of the set on the same interface.
func (m *model) hasAnother(s *modelState, l Lease) bool {
	if keptForSeveral(l.Last.Policy) {
		return false
	}
	for a, other := range s.leases {
		if !owned(l) || a == l.Address || other.Owner != l.Owner || !sameSet(s.known, a, l.Address) {
			continue
		}
		for _, h := range other.Holders {
			if h.IfName == l.Last.IfName && h.Namespace.BootID == m.bootID {
				return true
			}
		}
	}
	return false
}

// afterLastHolder makes a lease without holders reserved, quarantined or free.
func (m *model) afterLastHolder(s *modelState, l Lease) {
	now := m.now()
	l.ReleasedAt = now
	if l.Conflict {
		l.Last.Policy.Quarantine = max(l.Last.Policy.Quarantine, DefaultQuarantine)
	}
	policy := l.Last.Policy
	ends := []time.Time{now.Add(time.Duration(policy.Quarantine)), l.ByHandUntil}
	forEver := l.ByHand && l.ByHandUntil.IsZero() || policy.Sticky && policy.Retain == 0
	if policy.Sticky {
		ends = append(ends, now.Add(time.Duration(policy.Retain)))
	}
	switch {
	case owned(l) && forEver:
		l.State, l.Until, l.Conflict = Reserved, time.Time{}, false
	case owned(l) && (l.ByHand || policy.Sticky):
		l.State, l.Until, l.Conflict = Reserved, slices.MaxFunc(ends, time.Time.Compare), false
	case policy.Quarantine > 0:
		l.State, l.Until = Quarantined, ends[0]
	default:
		delete(s.leases, l.Address)
		return
	}
	s.leases[l.Address] = l
}

// unreserve ends a reservation. A quarantine may follow.
func (m *model) unreserve(s *modelState, l Lease) {
	notByHand(&l)
	l.Last.Policy.Sticky = false
	quarantine := l.ReleasedAt.Add(time.Duration(l.Last.Policy.Quarantine))
	if l.State != Reserved || !quarantine.After(m.now()) {
		delete(s.leases, l.Address)
		return
	}
	l.State, l.Until = Quarantined, quarantine
	s.leases[l.Address] = l
}

// giveUpIf gives up the addresses of the holders that are gone, in the order of the addresses.
func (m *model) giveUpIf(gone func(Holder) bool) error {
	return m.settled(func(s *modelState) error {
		err := errSame
		for _, a := range everyAddress {
			if slices.ContainsFunc(s.leases[a].Holders, gone) {
				m.giveUp(s, a, gone)
				err = nil
			}
		}
		return err
	})
}

func isOf(key attachment.Key) func(Holder) bool {
	return func(h Holder) bool { return h.ContainerID == key.ContainerID && h.IfName == key.IfName }
}

// release is a DEL.
func (m *model) release(key attachment.Key) error {
	return m.change(func(s *modelState) error {
		err := errSame
		for _, a := range everyAddress {
			if !slices.ContainsFunc(s.leases[a].Holders, isOf(key)) {
				continue
			}
			m.giveUp(s, a, isOf(key))
			err = nil
		}
		return err
	})
}

// releasePrevious lets go of the holders from which the attachment has taken over.
func (m *model) releasePrevious(key attachment.Key) error {
	return m.settled(func(s *modelState) error {
		err := errSame
		for _, a := range everyAddress {
			l := s.leases[a]
			if i := slices.IndexFunc(l.Holders, isOf(key)); i > 0 {
				l.Holders = l.Holders[i:]
				s.leases[a] = l
				err = nil
			}
		}
		return err
	})
}

// abandon lets go of exactly this holder.
func (m *model) abandon(a netip.Addr, holder Holder) error {
	is := func(h Holder) bool {
		return h.ContainerID == holder.ContainerID && h.IfName == holder.IfName && h.Since.Equal(holder.Since) && h.Namespace == holder.Namespace
	}
	l, leased := m.current()[a]
	switch {
	case !leased:
		return ErrNotLeased
	case !slices.ContainsFunc(l.Holders, is):
		return ErrHolderChanged
	}
	return m.settled(func(s *modelState) error {
		m.giveUp(s, a, is)
		return nil
	})
}

// current returns the leases as the next ADD would find them.
func (m *model) current() map[netip.Addr]Lease {
	leases := m.booted().leases
	for a, l := range leases {
		if m.over(l) {
			delete(leases, a)
		}
	}
	return leases
}

// list returns the same as Store.List.
func (m *model) list() []Lease {
	var all []Lease
	leases := m.current()
	for _, a := range everyAddress {
		if l, leased := leases[a]; leased {
			all = append(all, l)
		}
	}
	return all
}
