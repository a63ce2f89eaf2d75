package checkpoint

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netfilter"
)

// AccessIn returns the recorded host access, to be compared and mended in the sandbox. The record has one.
func (r Record) AccessIn(host, sandbox *kernel.Namespace) hostaccess.Pod {
	return hostaccess.Pod{Access: *r.HostAccess, Host: host, Sandbox: sandbox}
}

// Accesses returns the host accesses of the records, the newest first: of two sandboxes with one address, the newer one counts.
func Accesses(records []Record) (all []hostaccess.Access) {
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b Record) int { return b.CapturedAt.Compare(a.CapturedAt) })
	for _, r := range records {
		if r.HostAccess != nil {
			all = append(all, *r.HostAccess)
		}
	}
	return all
}

// NoteMasquerade notes that rules of iptables of these families are about to be made in the host. The caller holds LockMasquerade.
// The note is there while such a rule may be: to look for one takes several processes, and most nodes never have one.
func (s *Store) NoteMasquerade(families ...netfilter.Family) error {
	noted := s.Masquerades()
	text := ""
	for _, f := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if slices.Contains(families, f) || slices.Contains(noted, f) {
			text += f.String() + "\n"
		}
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, masqueradeFile), []byte(text), 0o600)
}

// Masquerades are the families of which a rule of iptables may be in the host. A note that a kill has cut short stands for both.
func (s *Store) Masquerades() (families []netfilter.Family) {
	text, err := os.ReadFile(filepath.Join(s.dir, masqueradeFile))
	if err != nil {
		return nil
	}
	for _, f := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if len(text) == 0 || strings.Contains(string(text), f.String()) {
			families = append(families, f)
		}
	}
	return families
}

// EndMasquerade notes that no rule of iptables is left.
func (s *Store) EndMasquerade() { _ = os.Remove(filepath.Join(s.dir, masqueradeFile)) }

func (s *Store) accessLock() string { return filepath.Join(s.dir, accessLock) }

// GaveHostAccess says that a pod has had host access since the boot.
func (s *Store) GaveHostAccess() bool {
	_, err := os.Stat(s.accessLock())
	return err == nil
}

// LockHostAccess takes the lock for what the host has for all pods with host access: the policy rules and the stand-in address. It
// waits until ctx is done and then returns ErrBusy. The holder waits for nothing: no other lock, and no other program.
func (s *Store) LockHostAccess(ctx context.Context) (unlock func(), err error) {
	return s.lockOfHost(ctx, s.accessLock(), "host access")
}

// LockMasquerade is LockHostAccess for the chain of iptables in the host, whose programs take time. Only pods with a rule there wait
// for it.
func (s *Store) LockMasquerade(ctx context.Context) (unlock func(), err error) {
	return s.lockOfHost(ctx, filepath.Join(s.dir, masqueradeLock), "the rules of iptables for host access")
}

func (s *Store) lockOfHost(ctx context.Context, path, what string) (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("lock %s: %w", what, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|atOnce, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", what, err)
	}
	notice := s.onWait.Notice(func() string { return what })
	if err := flock.LockNoticed(ctx, f, flock.Exclusive, notice); err != nil {
		return nil, fmt.Errorf("lock %s (%s): %w", what, f.Name(), err)
	}
	return func() { _ = f.Close() }, nil
}
