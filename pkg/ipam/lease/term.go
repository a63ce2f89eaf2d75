package lease

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/pool"
)

// A pool can have nodes fenced that are silent (package pool says when). A store of such a pool gives new addresses only for a term
// after the node's last sign of life.

// ErrSilent says that the API has had no sign of life of this node for so long that others may soon get what it has of a pool.
// errors.Is matches ErrUnconfirmed, too.
var ErrSilent error = unconfirmed("the Kubernetes API has had no sign of life of this node for too long")

// errUnwritten is the error of a pool that begins anew.
const errUnwritten = unconfirmed("this node has to write its blocks anew")

// unconfirmed is a further reason for ErrUnconfirmed.
type unconfirmed string

// Error returns the reason.
func (e unconfirmed) Error() string { return string(e) }

// Is says that the agent can do something about it.
func (unconfirmed) Is(target error) bool { return target == ErrUnconfirmed }

// Sign is a sign of life of this node in this boot: a renewal of its Lease in the API. The zero Sign is none.
type Sign struct {
	// Lease is the UID of the Lease.
	Lease string
	// After is a time since the boot. The renewal was written later.
	After time.Duration
}

// sign is the last sign of life that the store knows.
type sign struct {
	Sign
	bootID string
}

// term is what a store obeys of a pool.
type term struct {
	// fenceAfter is the pool's key. 0 is never.
	fenceAfter time.Duration
	// session is how often the store has begun anew with the pool, and confirmed the session in which all blocks were written last.
	session          uint64
	confirmedSession string
	// rest is what a newer relink has added.
	rest []byte
}

// Renew notes a sign of life, and what the pools have as spec.fenceAfter, as far as the caller has read that. It begins a new session
// with a pool if the term was over before, or if the Lease was made anew: the store gives nothing of it then until Confirm. So a term
// that is over never goes on: somebody may have decided a fence meanwhile. changed says that the blocks have to be told. ErrNotLeased:
// there is no store.
func (s *Store) Renew(ctx context.Context, renewal Sign, fenceAfter map[string]time.Duration) (changed bool, err error) {
	err = s.changeGrants(ctx, func(l *leaseTx) error {
		previous, err := l.sign()
		if err != nil {
			return err
		}
		named, err := l.namedPools()
		if err != nil {
			return err
		}
		current, obeys := sign{renewal, l.startMark.bootID}.orLater(previous), false
		for _, name := range l.allPools(named) {
			t, err := l.term(name)
			if err != nil {
				return err
			}
			next := t
			if want, ok := fenceAfter[name]; ok {
				next = t.withFenceAfter(want, renewal)
			}
			if renewal.Lease != "" && next.session == t.session && !l.isTermOver(next, current) && (l.isTermOver(t, previous) || t.fenceAfter > 0 && current.Lease != previous.Lease) {
				next.session++
			}
			obeys = obeys || next.fenceAfter > 0
			if next.fenceAfter != t.fenceAfter || next.session != t.session {
				changed = true
				err = l.putTerm(name, next)
			}
			if err != nil {
				return err
			}
		}
		failpoint.Here("before noting a sign of life")
		switch {
		case obeys && renewal.Lease != "":
			return l.putSign(current)
		case changed:
			return nil
		}
		return errUnchanged
	})
	return changed, err
}

// withFenceAfter returns the term of a pool with that spec.fenceAfter. A shorter time is obeyed at once, if the store knows a sign of life:
// the blocks hear of it later. A longer one is obeyed when the blocks have heard of it: that is a new session.
func (t term) withFenceAfter(want time.Duration, renewal Sign) term {
	switch {
	case want == t.fenceAfter:
	case want == 0, t.fenceAfter > 0 && want > t.fenceAfter:
		t.fenceAfter = want
		t.session++
	case renewal.Lease != "":
		t.fenceAfter = want
	}
	return t
}

// orLater returns the later of two signs, of the same Lease in the same boot.
func (s sign) orLater(previous sign) sign {
	if previous.bootID == s.bootID && previous.Lease == s.Lease {
		s.After = max(s.After, previous.After)
	}
	return s
}

// isTermOver says whether the term is over now.
func (l *leaseTx) isTermOver(t term, last sign) bool {
	if t.fenceAfter == 0 {
		return false
	}
	return last.bootID != l.startMark.bootID || l.startMark.uptime >= last.After+pool.GrantPeriod(t.fenceAfter)
}

// isSessionWritten says whether all blocks of the pool were written in its session. The first one begins with the boot.
func (t term) isSessionWritten(bootID string) bool {
	return t.session == 0 || t.confirmedSession == pool.Session(bootID, t.session)
}

// confirmTerms notes the pools whose blocks were written in their sessions. One of which the term is over meanwhile begins anew with
// the next sign of life.
func (l *leaseTx) confirmTerms(written []PoolState) (changed bool, err error) {
	last, err := l.sign()
	if err != nil {
		return false, err
	}
	for _, p := range written {
		t, err := l.term(p.Name)
		if err != nil {
			return false, err
		}
		session := pool.Session(l.startMark.bootID, t.session)
		if p.Silent || p.Session != session || t.isSessionWritten(l.startMark.bootID) || l.isTermOver(t, last) {
			continue
		}
		t.confirmedSession, changed = session, true
		if err := l.putTerm(p.Name, t); err != nil {
			return false, err
		}
	}
	return changed, nil
}

// suspension says why the store gives nothing new of the pool, nil if it does.
func (l *leaseTx) suspension(name string) error {
	confirmed, err := l.isConfirmed()
	if err != nil {
		return err
	}
	t, err := l.term(name)
	if err != nil {
		return err
	}
	last, err := l.sign()
	switch {
	case err != nil:
		return err
	case l.isTermOver(t, last):
		return fmt.Errorf("pool %s of network %s: %w (spec.fenceAfter is %s): others may soon get its addresses; it gives some again when the kubelet and relink-agent reach the API", name, l.store.network, ErrSilent, t.fenceAfter)
	case !confirmed:
		return fmt.Errorf("pool %s of network %s: %w: relink-agent reads them as soon as the Kubernetes API answers", name, l.store.network, ErrUnconfirmed)
	case !t.isSessionWritten(l.startMark.bootID):
		return fmt.Errorf("pool %s of network %s: %w: relink-agent does so as soon as the Kubernetes API answers", name, l.store.network, errUnwritten)
	}
	return nil
}

// The encodings of a sign and of a term: a number of nanoseconds, and what follows it.

const number = 8

func (l *leaseTx) sign() (s sign, err error) {
	b := l.meta.Get([]byte(keySign))
	if b == nil {
		return s, nil
	}
	if len(b) < number {
		return s, fmt.Errorf("store %s: sign of life: %w", l.store.path, errCutShort)
	}
	s.After = time.Duration(binary.BigEndian.Uint64(b))
	rest := b[number:]
	for _, text := range []*string{&s.bootID, &s.Lease} {
		if *text, rest, err = firstText(rest); err != nil {
			return s, fmt.Errorf("store %s: sign of life: %w", l.store.path, err)
		}
	}
	return s, nil
}

func (l *leaseTx) putSign(s sign) error {
	b := binary.BigEndian.AppendUint64(nil, uint64(s.After))
	return l.meta.Put([]byte(keySign), append(b, textKey(s.bootID, s.Lease)...))
}

// term returns what the store obeys of the pool, the zero term for nothing.
func (l *leaseTx) term(name string) (t term, err error) {
	b := l.terms.Get([]byte(name))
	if b == nil {
		return t, nil
	}
	err = errCutShort
	if len(b) >= 2*number {
		t.fenceAfter, t.session = time.Duration(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[number:])
		t.confirmedSession, t.rest, err = firstText(b[2*number:])
	}
	if err != nil {
		return term{}, fmt.Errorf("store %s: term of pool %s: %w", l.store.path, name, err)
	}
	return t, nil
}

func (l *leaseTx) putTerm(name string, t term) error {
	b := binary.BigEndian.AppendUint64(nil, uint64(t.fenceAfter))
	b = binary.BigEndian.AppendUint64(b, t.session)
	return l.terms.Put([]byte(name), append(append(b, textKey(t.confirmedSession)...), t.rest...))
}

// verifyTerms reads the sign of life and all terms.
func (l *leaseTx) verifyTerms() error {
	_, err := l.sign()
	return errors.Join(err, l.terms.ForEach(func(name, _ []byte) error {
		_, err := l.term(string(name))
		return err
	}))
}
