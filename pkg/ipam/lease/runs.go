package lease

import (
	"bytes"
	"errors"
	"net/netip"
)

// The runs are the spans of addresses that are not free, each without a gap. They show the next free address
// without a look at each lease: a pool that has only its last address free is not searched.

// run returns the run that the address is in. The zero Addr, which comes before the first and after the last, is in none.
func (l *leaseTx) run(a netip.Addr) (Span, bool) {
	if !a.IsValid() {
		return Span{}, false
	}
	key := addressKey(a)
	cursor := l.runs.Cursor()
	first, last := cursor.Seek(key)
	if first == nil {
		first, last = cursor.Last()
	} else if !bytes.Equal(first, key) {
		first, last = cursor.Prev()
	}
	if first == nil {
		return Span{}, false
	}
	run := Span{First: addressOf(first), Last: addressOf(last)}
	return run, run.Contains(a)
}

// occupy adds a free address to the runs. It joins the runs on both sides of it.
func (l *leaseTx) occupy(a netip.Addr) error {
	grown := Span{First: a, Last: a}
	if before, ok := l.run(a.Prev()); ok {
		grown.First = before.First
	}
	if after, ok := l.run(a.Next()); ok {
		grown.Last = after.Last
		if err := l.runs.Delete(addressKey(after.First)); err != nil {
			return err
		}
	}
	return l.putRun(grown)
}

// vacate takes an address out of its run, which can split it into two.
func (l *leaseTx) vacate(a netip.Addr) error {
	run, ok := l.run(a)
	if !ok {
		return nil
	}
	err := l.runs.Delete(addressKey(run.First))
	if run.First != a {
		err = errors.Join(err, l.putRun(Span{First: run.First, Last: a.Prev()}))
	}
	if run.Last != a {
		err = errors.Join(err, l.putRun(Span{First: a.Next(), Last: run.Last}))
	}
	return err
}

func (l *leaseTx) putRun(s Span) error { return l.runs.Put(addressKey(s.First), addressKey(s.Last)) }

// firstFree returns the first free address of the turn, the zero Addr for none. ErrDamaged: the runs call an address free that has a
// lease, so they are no help to find one that is.
func (l *leaseTx) firstFree(t turn) (netip.Addr, error) {
	for a := t.firstGiven(t.part.First); a.IsValid() && t.part.Contains(a); {
		run, occupied := l.run(a)
		if !occupied && l.byAddress.Get(addressKey(a)) != nil {
			return netip.Addr{}, damaged("the index of runs calls %s free, which has a lease", a)
		}
		if !occupied {
			return a, nil
		}
		next := run.Last.Next()
		if !next.IsValid() {
			break
		}
		a = t.firstGiven(next)
	}
	return netip.Addr{}, nil
}
