package checkpoint

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/statefile"
)

// HostAccessPod returns the recorded host access, to be compared and mended in the sandbox. The record has one.
func (r Record) HostAccessPod(host, sandbox *kernel.Namespace) hostaccess.Pod {
	return hostaccess.Pod{Access: *r.HostAccess, Host: host, Sandbox: sandbox}
}

// HostAccesses returns the host accesses of the records, the newest first: of two sandboxes with one address, the newer one counts.
func HostAccesses(records []Record) (accesses []hostaccess.Access) {
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b Record) int { return b.CapturedAt.Compare(a.CapturedAt) })
	for _, r := range records {
		if r.HostAccess != nil {
			accesses = append(accesses, *r.HostAccess)
		}
	}
	return accesses
}

// Masquerade returns what the rules of iptables in the host do, as the last change of them noted it. It is empty if there are none. To look
// at the rules takes several processes.
func (s *Store) Masquerade() (noted hostaccess.Masquerade) {
	_ = statefile.Load(filepath.Join(s.dir, masqueradeFile), &noted) // Without a note, the next one who needs rules makes them.
	return noted
}

// ApplyMasquerade makes the rules, or takes them away if m needs none, and notes that. The caller holds MasqueradeLock.
func (s *Store) ApplyMasquerade(host *kernel.Namespace, m hostaccess.Masquerade) error {
	path, before := filepath.Join(s.dir, masqueradeFile), s.Masquerade()
	m.Applied = false
	pending := m.Join(before)
	if err := statefile.Save(path, pending); err != nil {
		return err
	}
	if err := m.Ensure(host, before); err != nil {
		return err
	}
	if m.Applied = true; len(m.Sources) == 0 {
		return statefile.Remove(path)
	}
	return statefile.Save(path, m)
}

// HadHostAccess says that a pod has had host access since the boot.
func (s *Store) HadHostAccess() bool {
	_, err := os.Stat(s.nodeFile(AccessLock))
	return err == nil
}
