package lease

import (
	"context"
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
	Lease string `json:"lease"`
	// After is a time since the boot. The renewal was written later.
	After time.Duration `json:"after"`
}

// sign is the last sign of life that the store knows, in JSON under keySign.
type sign struct {
	Sign
	BootID  string  `json:"bootID"`
	Unknown Unknown `json:"-"`
}

// term is what a store obeys of a pool, in JSON in bucketTerms.
type term struct {
	// FenceAfter is the pool's key. 0 is never.
	FenceAfter time.Duration `json:"fenceAfter"`
	// Session is how often the store has begun anew with the pool, and ConfirmedSession the session in which all blocks were written last.
	Session          uint64  `json:"session"`
	ConfirmedSession string  `json:"confirmedSession"`
	Unknown          Unknown `json:"-"`
}

// Renew notes a sign of life, and what the pools have as spec.fenceAfter, as far as the caller has read that. It begins a new session
// with a pool if the term was over before, or if the Lease was made anew: the store gives nothing of it then until Confirm. So a term
// that is over never goes on: somebody may have decided a fence meanwhile. changed says that the blocks have to be told. ErrNotLeased:
// there is no store.
func (s *Store) Renew(ctx context.Context, renewal Sign, fenceAfter map[string]time.Duration) (changed bool, err error) {
	return result(ctx, s.grow, func(l *leaseTx) (changed bool, err error) {
		previous, err := l.sign()
		if err != nil {
			return false, err
		}
		named, err := l.namedPools()
		if err != nil {
			return false, err
		}
		current, obeys := sign{Sign: renewal, BootID: l.bootID()}.orLater(previous), false
		for _, name := range l.allPools(named) {
			t, err := l.term(name)
			if err != nil {
				return false, err
			}
			next := t
			if want, ok := fenceAfter[name]; ok {
				next = t.withFenceAfter(want, renewal)
			}
			if renewal.Lease != "" && next.Session == t.Session && !l.isTermOver(next, current) && (l.isTermOver(t, previous) || t.FenceAfter > 0 && current.Lease != previous.Lease) {
				next.Session++
			}
			obeys = obeys || next.FenceAfter > 0
			if next.FenceAfter != t.FenceAfter || next.Session != t.Session {
				changed = true
				if err := l.putTerm(name, next); err != nil {
					return false, err
				}
			}
		}
		failpoint.Here("before noting a sign of life")
		switch {
		case obeys && renewal.Lease != "":
			return changed, l.meta.Put([]byte(keySign), encode(&current))
		case changed:
			return true, nil
		}
		return false, errUnchanged
	})
}

// withFenceAfter returns the term of a pool with that spec.fenceAfter. A shorter time is obeyed at once, if the store knows a sign of life:
// the blocks hear of it later. A longer one is obeyed when the blocks have heard of it: that is a new session.
func (t term) withFenceAfter(want time.Duration, renewal Sign) term {
	switch {
	case want == t.FenceAfter:
	case want == 0, t.FenceAfter > 0 && want > t.FenceAfter:
		t.FenceAfter = want
		t.Session++
	case renewal.Lease != "":
		t.FenceAfter = want
	}
	return t
}

// orLater returns the later of two signs, of the same Lease in the same boot.
func (s sign) orLater(previous sign) sign {
	if previous.BootID == s.BootID && previous.Lease == s.Lease {
		s.After = max(s.After, previous.After)
	}
	return s
}

// isTermOver says whether the term is over now.
func (l *leaseTx) isTermOver(t term, last sign) bool {
	if t.FenceAfter == 0 {
		return false
	}
	return last.BootID != l.bootID() || l.startMark.Uptime >= last.After+pool.GrantPeriod(t.FenceAfter)
}

// isSessionWritten says whether all blocks of the pool were written in its session. The first one begins with the boot.
func (t term) isSessionWritten(bootID string) bool {
	return t.Session == 0 || t.ConfirmedSession == pool.Session(bootID, t.Session)
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
		session := pool.Session(l.bootID(), t.Session)
		if p.Silent || p.Session != session || t.isSessionWritten(l.bootID()) || l.isTermOver(t, last) {
			continue
		}
		t.ConfirmedSession, changed = session, true
		if err := l.putTerm(p.Name, t); err != nil {
			return false, err
		}
	}
	return changed, nil
}

// suspension says why the store gives nothing new of the pool, nil if it does.
func (l *leaseTx) suspension(name string) error {
	t, err := l.term(name)
	if err != nil {
		return err
	}
	last, err := l.sign()
	switch {
	case err != nil:
		return err
	case l.isTermOver(t, last):
		return fmt.Errorf("pool %s of network %s: %w (spec.fenceAfter is %s): others may soon get its addresses; it gives some again when the kubelet and relink-agent reach the API", name, l.store.network, ErrSilent, t.FenceAfter)
	case !l.isConfirmed():
		return fmt.Errorf("pool %s of network %s: %w: relink-agent reads them as soon as the Kubernetes API answers", name, l.store.network, ErrUnconfirmed)
	case !t.isSessionWritten(l.bootID()):
		return fmt.Errorf("pool %s of network %s: %w: relink-agent does so as soon as the Kubernetes API answers", name, l.store.network, errUnwritten)
	}
	return nil
}

func (l *leaseTx) sign() (s sign, err error) {
	err = decodeFrom(l.meta, keySign, "sign of life", &s)
	return s, err
}

// term returns what the store obeys of the pool, the zero term for nothing.
func (l *leaseTx) term(name string) (t term, err error) {
	err = decodeFrom(l.terms, name, "term of pool "+name, &t)
	return t, err
}

func (l *leaseTx) putTerm(name string, t term) error {
	return l.terms.Put([]byte(name), encode(&t))
}

// verifyTerms reads the sign of life and all terms.
func (l *leaseTx) verifyTerms() error {
	_, err := l.sign()
	return errors.Join(err, l.terms.ForEach(func(name, _ []byte) error {
		_, err := l.term(string(name))
		return err
	}))
}
