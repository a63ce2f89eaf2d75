package lease

import (
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

func (m *model) reserve(a netip.Addr, o attachment.Owner, retain time.Duration) error {
	return m.settled(func(s *modelState) error {
		l, leased := s.leases[a]
		if !s.isGiven(a) {
			return ErrNotGiven
		}
		if leased && l.State != Quarantined && l.Owner != o {
			return ErrTaken
		}
		// A new reservation never shortens what was there.
		ends := []time.Time{m.now().Add(retain)}
		forEver := retain == 0
		switch {
		case leased && l.State == Held:
			if m.byHand(l) {
				ends = append(ends, l.ByHandUntil)
				forEver = forEver || l.ByHandUntil.IsZero()
			}
		case leased:
			ends = append(ends, l.Until)
			forEver = forEver || l.Until.IsZero()
			if l.State == Quarantined {
				l.Last = Holder{Policy: Policy{Quarantine: l.Last.Policy.Quarantine}}
			}
		default:
			l = Lease{Address: a, Network: "pods", ReleasedAt: m.now()}
		}
		var until time.Time
		if !forEver {
			until = slices.MaxFunc(ends, time.Time.Compare)
		}
		if l.State != Held {
			l.State, l.Until = Reserved, until
		}
		l.Owner, l.ByHand, l.ByHandAt, l.ByHandUntil = o, true, m.now(), until
		s.leases[a] = l
		return nil
	})
}

// releaseByHand lets go of the holders that are meant, or ends a reservation or quarantine.
func (m *model) releaseByHand(a netip.Addr, meant func(Holder) bool) error {
	return m.settled(func(s *modelState) error {
		l, leased := s.leases[a]
		if !leased {
			return ErrNotLeased
		}
		if l.State != Held {
			m.unreserve(s, l)
			return nil
		}
		left := slices.DeleteFunc(slices.Clone(l.Holders), meant)
		if len(left) > 0 {
			l.Holders = left
			s.leases[a] = l
			return nil
		}
		l.Last, l.Holders = newest(l), nil
		l.Last.Policy.Sticky = false
		notByHand(&l)
		m.afterLastHolder(s, l)
		return nil
	})
}

// conflict reports whether another address replaces this one.
func (m *model) conflict(key attachment.Key, a netip.Addr) (exchanged bool, err error) {
	var refusal error
	err = m.change(func(s *modelState) error {
		l := s.leases[a]
		i := slices.IndexFunc(l.Holders, isOf(key))
		switch {
		case i < 0:
			return errModel
		case len(l.Holders) > 1 || l.Holders[i].Origin == TakenOver:
			return errSame
		}
		l.Conflict = true
		if m.byHand(l) || l.Holders[i].Origin != InTurn && l.Holders[i].Origin != LongestReleased {
			refusal = ErrInUse
			s.leases[a] = l
			return nil
		}
		exchanged = true
		l.Owner, l.Last, l.Holders = attachment.Owner{}, newest(l), nil
		notByHand(&l)
		m.afterLastHolder(s, l)
		return nil
	})
	if err == nil {
		err = refusal
	}
	return exchanged, err
}

// resetClock sets the time of the store to the time of day.
func (m *model) resetClock() {
	was, now := m.now(), m.day
	s := m.state.clone()
	// A time in the future stays as far ahead as before. A time in the past stays in the past.
	ahead := func(t time.Time) time.Time {
		if t.After(was) {
			return now.Add(t.Sub(was))
		}
		return t
	}
	past := func(t time.Time) time.Time {
		if t.After(now) {
			return now.Add(t.Sub(was))
		}
		return t
	}
	for a, l := range s.leases {
		// What was made and ended while the time was ahead has now ended.
		end := func(t, made time.Time) time.Time {
			if made.After(now) && t.After(now) && !t.After(was) {
				return now
			}
			return ahead(t)
		}
		l.Until, l.ByHandUntil = end(l.Until, latest(l.ReleasedAt, l.ByHandAt)), end(l.ByHandUntil, l.ByHandAt)
		l.ByHandAt, l.ReleasedAt, l.Last.Since = past(l.ByHandAt), past(l.ReleasedAt), past(l.Last.Since)
		l.Holders = slices.Clone(l.Holders)
		for i := range l.Holders {
			l.Holders[i].Since = past(l.Holders[i].Since)
		}
		s.leases[a] = l
	}
	s.mark = clockMark{Time: now, Uptime: m.uptime, BootID: m.bootID}
	m.state = s
}
