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
	// begun is how often the store has begun anew with the pool, and confirmed the session in which all blocks were written last.
	begun     uint64
	confirmed string
	// rest is what a newer relink has added.
	rest []byte
}

// Renew notes a sign of life, and what the pools have as spec.fenceAfter, as far as the caller has read that. It begins a new session
// with a pool if the term was over before, or if the Lease was made anew: the store gives nothing of it then until Confirm. So a term
// that is over never goes on: somebody may have decided a fence meanwhile. changed says that the blocks have to be told. ErrNone:
// there is no store.
func (s *Store) Renew(ctx context.Context, of Sign, fenceAfter map[string]time.Duration) (changed bool, err error) {
	err = s.changeGrants(ctx, func(l *leases) error {
		was, err := l.sign()
		if err != nil {
			return err
		}
		named, err := l.namedPools()
		if err != nil {
			return err
		}
		is, obeys := sign{of, l.begun.bootID}.orLater(was), false
		for _, name := range l.allPools(named) {
			t, err := l.term(name)
			if err != nil {
				return err
			}
			next := t
			if want, known := fenceAfter[name]; known {
				next = t.becomes(want, of)
			}
			if of.Lease != "" && next.begun == t.begun && !l.isOver(next, is) && (l.isOver(t, was) || t.fenceAfter > 0 && is.Lease != was.Lease) {
				next.begun++
			}
			obeys = obeys || next.fenceAfter > 0
			if next.fenceAfter != t.fenceAfter || next.begun != t.begun {
				changed = true
				err = l.putTerm(name, next)
			}
			if err != nil {
				return err
			}
		}
		failpoint.Here("before noting a sign of life")
		switch {
		case obeys && of.Lease != "":
			return l.putSign(is)
		case changed:
			return nil
		}
		return errUnchanged
	})
	return changed, err
}

// becomes returns the term of a pool with that spec.fenceAfter. A shorter time is obeyed at once, if the store knows a sign of life:
// the blocks hear of it later. A longer one is obeyed when the blocks have heard of it: that is a new session.
func (t term) becomes(want time.Duration, of Sign) term {
	switch {
	case want == t.fenceAfter:
	case want == 0, t.fenceAfter > 0 && want > t.fenceAfter:
		t.fenceAfter = want
		t.begun++
	case of.Lease != "":
		t.fenceAfter = want
	}
	return t
}

// orLater returns the later of two signs, of the same Lease in the same boot.
func (s sign) orLater(was sign) sign {
	if was.bootID == s.bootID && was.Lease == s.Lease {
		s.After = max(s.After, was.After)
	}
	return s
}

// isOver says whether the term is over now.
func (l *leases) isOver(t term, last sign) bool {
	if t.fenceAfter == 0 {
		return false
	}
	return last.bootID != l.begun.bootID || l.begun.uptime >= last.After+pool.GivesFor(t.fenceAfter)
}

// isWritten says whether all blocks of the pool were written in its session. The first one begins with the boot.
func (t term) isWritten(bootID string) bool {
	return t.begun == 0 || t.confirmed == pool.Session(bootID, t.begun)
}

// confirmTerms notes the pools whose blocks were written in their sessions. One of which the term is over meanwhile begins anew with
// the next sign of life.
func (l *leases) confirmTerms(written []PoolState) (changed bool, err error) {
	last, err := l.sign()
	if err != nil {
		return false, err
	}
	for _, p := range written {
		t, err := l.term(p.Name)
		if err != nil {
			return false, err
		}
		session := pool.Session(l.begun.bootID, t.begun)
		if p.Silent || p.Session != session || t.isWritten(l.begun.bootID) || l.isOver(t, last) {
			continue
		}
		t.confirmed, changed = session, true
		if err := l.putTerm(p.Name, t); err != nil {
			return false, err
		}
	}
	return changed, nil
}

// stops says why the store gives nothing new of the pool, nil if it does.
func (l *leases) stops(name string) error {
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
	case l.isOver(t, last):
		return fmt.Errorf("pool %s of network %s: %w (spec.fenceAfter is %s): others may soon get its addresses; it gives some again when the kubelet and relink-agent reach the API", name, l.store.network, ErrSilent, t.fenceAfter)
	case !confirmed:
		return fmt.Errorf("pool %s of network %s: %w: relink-agent reads them as soon as the Kubernetes API answers", name, l.store.network, ErrUnconfirmed)
	case !t.isWritten(l.begun.bootID):
		return fmt.Errorf("pool %s of network %s: %w: relink-agent does so as soon as the Kubernetes API answers", name, l.store.network, errUnwritten)
	}
	return nil
}

// The encodings of a sign and of a term: a number of nanoseconds, and what follows it.

const number = 8

func (l *leases) sign() (s sign, err error) {
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

func (l *leases) putSign(s sign) error {
	b := binary.BigEndian.AppendUint64(nil, uint64(s.After))
	return l.meta.Put([]byte(keySign), append(b, textKey(s.bootID, s.Lease)...))
}

// term returns what the store obeys of the pool, the zero term for nothing.
func (l *leases) term(name string) (t term, err error) {
	if l.terms == nil {
		return t, nil
	}
	b := l.terms.Get([]byte(name))
	if b == nil {
		return t, nil
	}
	err = errCutShort
	if len(b) >= 2*number {
		t.fenceAfter, t.begun = time.Duration(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[number:])
		t.confirmed, t.rest, err = firstText(b[2*number:])
	}
	if err != nil {
		return term{}, fmt.Errorf("store %s: term of pool %s: %w", l.store.path, name, err)
	}
	return t, nil
}

func (l *leases) putTerm(name string, t term) (err error) {
	if l.terms, err = l.tx.CreateBucketIfNotExists([]byte(bucketTerms)); err != nil {
		return err
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(t.fenceAfter))
	b = binary.BigEndian.AppendUint64(b, t.begun)
	return l.terms.Put([]byte(name), append(append(b, textKey(t.confirmed)...), t.rest...))
}

// verifyTerms reads the sign of life and all terms.
func (l *leases) verifyTerms() error {
	_, err := l.sign()
	if l.terms == nil {
		return err
	}
	return errors.Join(err, l.terms.ForEach(func(name, _ []byte) error {
		_, err := l.term(string(name))
		return err
	}))
}
