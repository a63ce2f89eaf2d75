package cluster

import (
	"errors"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// diskFull shows a node whose disk takes nothing more: it takes no address that it cannot note, and goes on as soon as there is
// room.
func (a *api) diskFull(t *testing.T, users map[string]user) {
	deletePool(t, users["admin"], "lan")
	users["admin"].must(t, http.MethodPost, pools, poolObject(pool.Pool{Metadata: pool.Meta{Name: "lan"}, Spec: pool.Spec{Subnet: "10.8.0.0/20", BlockSize: pool.MaxBlockSize}}), nil)
	one, other := a.quiet(t, users, "node1"), a.quiet(t, users, "node2")
	if err := unix.Mount("tmpfs", one.dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(one.dir, 0); err != nil {
			t.Error(err)
		}
	})
	has := map[netip.Addr]string{}
	give := func(m *member) error {
		p, err := m.add(t.Context(), m.request(lease.Policy{}, ""))
		if err != nil {
			return err
		}
		if by := has[p.address]; by != "" {
			t.Fatalf("%s is held on %s and given on %s", p.address, by, m.name)
		}
		has[p.address] = m.name
		return nil
	}
	must := func(m *member) {
		m.starts(t, func() (given, error) { return given{}, give(m) })
	}
	must(one)
	filler := fillDisk(t, one.dir)
	var err error
	started := 0
	for err == nil {
		if err = give(one); err == nil {
			started++
		}
		if started > 1000 {
			t.Fatal("the disk does not get full")
		}
	}
	t.Logf("%d pods started on a full disk", started)
	if !errors.Is(err, unix.ENOSPC) && !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("after %d pods, with a full disk: %v, want %v", started, err, unix.ENOSPC)
	}
	a.within(t, users, one, "with a full disk")
	for address, l := range one.leased(t) {
		if l.State == lease.Held && has[address] == "" {
			t.Errorf("%s is held by nobody's pod", address)
		}
	}
	for range 20 { // Others do not get what the node has, or was about to get.
		must(other)
	}
	for range 3 { // Pods end without more room.
		one.endAny(t, has)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	await(t, 30*time.Second, "the node to go on", func() bool {
		one.Reconcile(t.Context())
		return give(one) == nil
	})
	for range 20 {
		must(one)
	}
	one.Reconcile(t.Context())
	a.within(t, users, one, "with room again")
}

// fillDisk leaves no room in the directory's file system, and returns the file that takes it.
func fillDisk(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return f.Name()
}

// endAny ends a pod of the node.
func (m *member) endAny(t *testing.T, has map[netip.Addr]string) {
	t.Helper()
	for address, l := range m.leased(t) {
		if l.State == lease.Held {
			m.del(t, given{key: l.Newest().Key("lan")})
			delete(has, address)
			return
		}
	}
	t.Error("no pod is left to end")
}
