package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netfilter"
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

// NoteMasquerade notes that rules of iptables of these families are about to be made in the host. The caller holds MasqueradeLock.
// The note is there while such a rule may be: to look for one takes several processes, and most nodes never have one.
func (s *Store) NoteMasquerade(families ...netfilter.Family) error {
	families = append(families, s.MasqueradeFamilies()...)
	text := ""
	for _, f := range netfilter.Families {
		if slices.Contains(families, f) {
			text += f.String() + "\n"
		}
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, masqueradeFile), []byte(text), 0o600)
}

// MasqueradeFamilies are the families of which a rule of iptables may be in the host. A note that a kill has cut short stands for both.
func (s *Store) MasqueradeFamilies() (families []netfilter.Family) {
	text, err := os.ReadFile(filepath.Join(s.dir, masqueradeFile))
	if err != nil {
		return nil
	}
	for _, f := range netfilter.Families {
		if len(text) == 0 || strings.Contains(string(text), f.String()) {
			families = append(families, f)
		}
	}
	return families
}

// ForgetMasquerade notes that no rule of iptables is left.
func (s *Store) ForgetMasquerade() { _ = os.Remove(filepath.Join(s.dir, masqueradeFile)) }

// HadHostAccess says that a pod has had host access since the boot.
func (s *Store) HadHostAccess() bool {
	_, err := os.Stat(s.nodeFile(AccessLock))
	return err == nil
}
