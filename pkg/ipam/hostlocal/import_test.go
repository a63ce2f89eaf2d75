package hostlocal

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/importer"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/test/fresh"
)

// The tests see only their own processes. Otherwise, the sandbox of another process might have any address.
func TestMain(m *testing.M) {
	fresh.EnterAlone()
	fresh.Main(m)
}

// importInto returns an empty store of the network lan.
func importInto(t testing.TB) *lease.Store {
	t.Helper()
	s, err := lease.Open(t.TempDir(), "lan")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// filesIn makes files in the directory.
func filesIn(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// hostLocalWith makes a directory of host-local with these files.
func hostLocalWith(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	filesIn(t, dir, files)
	return dir
}

// cacheWith makes CNI caches with these files.
func cacheWith(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	filesIn(t, dir, files)
	if err := os.MkdirAll(filepath.Join(dir, "results"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func importWith(t testing.TB, s *lease.Store, dir string, o importer.Options) importer.ImportReport {
	t.Helper()
	r, err := Import(t.Context(), s, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func imported(t testing.TB, s *lease.Store, dir string) importer.ImportReport {
	t.Helper()
	return importWith(t, s, dir, importer.Options{Sources: reclaim.Sources{CacheDir: cacheWith(t, nil), AllProcesses: true}})
}

func listed(t testing.TB, s *lease.Store) []lease.Lease {
	t.Helper()
	all, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// onLan returns an attachment of the network lan.
func onLan(containerID, ifName string) attachment.Key {
	return attachment.Key{Network: "lan", ContainerID: containerID, IfName: ifName}
}

func TestImportLeasesAllFamilies(t *testing.T) {
	s := importInto(t)
	dir := hostLocalWith(t, map[string]string{
		"10.231.77.2": "c1\r\neth0", "fd00:3::5": "c1\r\neth0", "lock": "",
		"last_reserved_ip.0": "10.231.77.2", "last_reserved_ip.1": "fd00:3::5",
		// host-local never looks for these.
		"fd00:3:0::6": "c2\r\neth0", "::ffff:10.231.77.3": "c2\r\neth0", "fe80::1%eth0": "c2\r\neth0",
	})
	written := time.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	if err := os.Chtimes(filepath.Join(dir, "10.231.77.2"), written, written); err != nil {
		t.Fatal(err)
	}
	r := imported(t, s, dir)
	const unknown = "host-local has no files of this name"
	want := []importer.EntryOutcome{
		{File: "10.231.77.2", Address: netip.MustParseAddr("10.231.77.2"), Attachment: onLan("c1", "eth0"), State: importer.Imported},
		{File: "fd00:3::5", Address: netip.MustParseAddr("fd00:3::5"), Attachment: onLan("c1", "eth0"), State: importer.Imported},
		{File: "::ffff:10.231.77.3", State: importer.Ignored, Reason: unknown},
		{File: "fd00:3:0::6", State: importer.Ignored, Reason: unknown},
		{File: "fe80::1%eth0", State: importer.Ignored, Reason: unknown},
	}
	if !slices.Equal(r.Files, want) {
		t.Errorf("files: %+v, want %+v", r.Files, want)
	}
	if r.Complete() {
		t.Error("files that are ignored are called well")
	}
	all := listed(t, s)
	if len(all) != 2 || !all[0].HeldBy(onLan("c1", "eth0")) || !all[1].HeldBy(onLan("c1", "eth0")) || !all[0].Newest().Since.Equal(written) {
		t.Errorf("leases: %+v", all)
	}
}

var set = lease.RangeSet{{
	Span:   lease.Span{First: netip.MustParseAddr("10.231.77.1"), Last: netip.MustParseAddr("10.231.77.254")},
	Subnet: netip.MustParsePrefix("10.231.77.0/24"), Gateway: netip.MustParseAddr("10.231.77.1"),
}}

// added gives the sandbox an address, as an ADD of relink-ipam does.
func added(t testing.TB, s *lease.Store, r lease.Request) netip.Addr {
	t.Helper()
	r.Sets = []lease.RangeSet{set}
	given, err := s.Allocate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return given[0].Address
}

// A lease of an old host-local names no interface. It belongs to eth0, because pods have an eth0.
func TestImportOfAnOldHostLocal(t *testing.T) {
	s := importInto(t)
	imported(t, s, hostLocalWith(t, map[string]string{"10.231.77.2": "c1", "10.231.77.3": "c1\r\nnet1"}))
	for _, step := range []struct {
		ifName string
		left   []lease.State
	}{
		{"net2", []lease.State{lease.Held, lease.Held}}, {"net1", []lease.State{lease.Held, lease.Quarantined}},
		{"eth0", []lease.State{lease.Quarantined, lease.Quarantined}},
	} {
		if err := s.Release(t.Context(), onLan("c1", step.ifName), lease.Policy{}); err != nil {
			t.Fatal(err)
		}
		var left []lease.State
		for _, l := range listed(t, s) {
			left = append(left, l.State)
		}
		if !slices.Equal(left, step.left) {
			t.Errorf("after the DEL of %s: %v, want %v", step.ifName, left, step.left)
		}
	}
}

func TestImportIsAllOrNothing(t *testing.T) {
	storeDir := t.TempDir()
	s, err := lease.Open(storeDir, "lan")
	if err != nil {
		t.Fatal(err)
	}
	dir := hostLocalWith(t, map[string]string{"10.231.77.2": "c1\r\neth0", "10.231.77.3": ""})
	o := importer.Options{Sources: reclaim.Sources{CacheDir: cacheWith(t, nil), AllProcesses: true}, DryRun: true}
	r := importWith(t, s, dir, o)
	if r.Files[0].State != importer.ToImport || r.Files[1].State != importer.Torn {
		t.Errorf("dry run: %+v", r)
	}
	if files, err := os.ReadDir(storeDir); err != nil || len(files) > 0 {
		t.Errorf("a dry run has made %v, %v", files, err)
	}
	if _, err := s.Reserve(t.Context(), netip.MustParseAddr("10.231.77.9"), attachment.Pod{Namespace: "shop", Name: "web-0"}.Owner(), 0); err != nil {
		t.Fatal(err)
	}
	if r := importWith(t, s, dir, o); r.Files[0].State != importer.ToImport || len(listed(t, s)) != 1 {
		t.Errorf("dry run beside a lease: %+v, leases %v", r, listed(t, s))
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	o.DryRun = false
	if _, err := Import(done, s, dir, o); !errors.Is(err, context.Canceled) || len(listed(t, s)) != 1 {
		t.Errorf("interrupted: %v, leases %v", err, listed(t, s))
	}
}

func TestImportOfAFullNetworkTwiceAtOnce(t *testing.T) {
	n := 4_000
	if os.Getenv("RELINK_LONG") != "" {
		n = 16_000
	}
	dir := t.TempDir()
	want := map[netip.Addr]string{}
	a := netip.MustParseAddr("10.231.77.2")
	for i := range n {
		want[a] = fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, i)))
		if err := os.WriteFile(filepath.Join(dir, a.String()), []byte(want[a]+"\r\neth0"), 0o600); err != nil {
			t.Fatal(err)
		}
		a = a.Next()
	}
	s, cacheDir := importInto(t), cacheWith(t, nil)
	s.SetWait(10 * time.Minute) // On a busy machine, the other import can take longer than 30 s.
	var counts sync.Map
	var both sync.WaitGroup
	for i := range 2 {
		both.Go(func() {
			count := map[importer.EntryState]int{}
			r, err := Import(t.Context(), s, dir, importer.Options{Sources: reclaim.Sources{CacheDir: cacheDir, AllProcesses: true}})
			if err != nil {
				t.Error(err)
			}
			for _, f := range r.Files {
				count[f.State]++
			}
			counts.Store(i, count)
		})
	}
	both.Wait()
	total := map[importer.EntryState]int{}
	counts.Range(func(_, v any) bool {
		for state, c := range v.(map[importer.EntryState]int) {
			if c != n {
				t.Errorf("an import has %d files %s, want all %d or none", c, state, n)
			}
			total[state] += c
		}
		return true
	})
	if total[importer.Imported] != n || total[importer.Present] != n {
		t.Errorf("both together: %v, want %d imported and already there", total, n)
	}
	all := listed(t, s)
	if len(all) != n {
		t.Fatalf("%d leases, want %d", len(all), n)
	}
	for _, l := range all {
		if !l.HeldBy(onLan(want[l.Address], "eth0")) || l.Newest().Origin != lease.Imported {
			t.Fatalf("%+v, want it held by %s", l, want[l.Address])
		}
	}
	// Each lease is found by its attachment, and through its neighbours.
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	for i := 0; i < n; i += n / 100 {
		held, err := s.HeldBy(t.Context(), onLan(want[all[i].Address], "eth0"))
		if err != nil || len(held) != 1 || held[0].Address != all[i].Address {
			t.Errorf("%s: %v, %v", all[i].Address, held, err)
		}
	}
}

// ofEarlierBoot returns a holder that an import made before this boot.
func ofEarlierBoot(id string) lease.Holder {
	return lease.Holder{
		ContainerID: id, IfName: "eth0", Origin: lease.Imported, Since: time.Now().Add(-24 * time.Hour).UTC(),
		Namespace: attachment.Namespace{BootID: "the boot before"}, Policy: lease.Policy{Quarantine: lease.DefaultQuarantine},
	}
}

// host-local forgets nothing at a boot, so its files are then out of date.
func TestImportAfterABoot(t *testing.T) {
	s := importInto(t)
	dir := hostLocalWith(t, map[string]string{"10.231.77.2": "c1\r\neth0"})
	a := netip.MustParseAddr("10.231.77.2")
	err := s.Import(t.Context(), false, func(lease.ImportView) lease.Import {
		return lease.Import{Leases: []lease.Lease{{Address: a, State: lease.Held, Holders: []lease.Holder{ofEarlierBoot("c1")}}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	r := imported(t, s, dir)
	if r.Files[0].State != importer.Present || r.Files[0].Reason != "given up since, and in quarantine: held in an earlier boot" {
		t.Errorf("an import in the next boot: %+v", r.Files)
	}
}

// A reservation that has ended is nobody's, even if it is not cleared away yet. One change clears away only a limited
// number of them.
func TestImportTakesWhatHasEnded(t *testing.T) {
	s := importInto(t)
	dir := hostLocalWith(t, map[string]string{"10.231.77.101": "c1\r\neth0", "10.231.77.102": "c2\r\neth0"})
	owner := attachment.Pod{Namespace: "shop", Name: "web-0"}.Owner()
	err := s.Import(t.Context(), false, func(v lease.ImportView) lease.Import {
		var in lease.Import
		for a := netip.MustParseAddr("10.231.77.2"); a != netip.MustParseAddr("10.231.77.103"); a = a.Next() {
			l := lease.Lease{Address: a, State: lease.Reserved, Owner: owner, Until: v.Time}
			if a == netip.MustParseAddr("10.231.77.102") {
				l.Until = v.Time.Add(time.Hour)
			}
			in.Leases = append(in.Leases, l)
		}
		return in
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := imported(t, s, dir); r.Files[0].State != importer.Imported || r.Files[1].State != importer.Conflict {
		t.Errorf("%+v", r.Files)
	}
	if all := listed(t, s); len(all) != 2 || !all[0].HeldBy(onLan("c1", "eth0")) || all[1].State != lease.Reserved {
		t.Errorf("leases %+v", all)
	}
}

// A directory with nothing but the lock is host-local's. One without the lock is not, and that it is empty says nothing
// about any address.
func TestImportOfADirectoryThatIsNone(t *testing.T) {
	s := importInto(t)
	imported(t, s, hostLocalWith(t, map[string]string{"10.231.77.2": "c1\r\neth0"}))
	empty := t.TempDir()
	_, err := Import(t.Context(), s, empty, importer.Options{Sources: reclaim.Sources{CacheDir: cacheWith(t, nil), AllProcesses: true}})
	if err == nil || !strings.Contains(err.Error(), empty+" is not a directory of host-local") {
		t.Errorf("an empty one: %v", err)
	}
	file := filepath.Join(empty, "ippools.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Import(t.Context(), s, file, importer.Options{Sources: reclaim.Sources{CacheDir: cacheWith(t, nil), AllProcesses: true}})
	if want := file + " is a file, not a directory of host-local: if it has the IPPools of Whereabouts, give --from whereabouts"; err == nil || err.Error() != want {
		t.Errorf("a file: %v, want %s", err, want)
	}
	if all := listed(t, s); len(all) != 1 || all[0].State != lease.Held {
		t.Errorf("leases: %+v", all)
	}
}

// The changes that a dry run reports are those that the import then makes.
func TestADryRunIsWhatAnImportDoes(t *testing.T) {
	dir := hostLocalWith(t, map[string]string{"10.231.77.2": "c1\r\neth0", "10.231.77.3": "", "last_reserved_ip.0": "10.231.77.3"})
	s, cacheDir := importInto(t), cacheWith(t, nil)
	would := importWith(t, s, dir, importer.Options{Sources: reclaim.Sources{CacheDir: cacheDir, AllProcesses: true}, DryRun: true})
	is := importWith(t, s, dir, importer.Options{Sources: reclaim.Sources{CacheDir: cacheDir, AllProcesses: true}})
	if would.DryRun != true || is.DryRun != false {
		t.Errorf("dry run: %v, %v", would.DryRun, is.DryRun)
	}
	would.DryRun = false
	would.Files[0].State = importer.Imported
	if diff := cmp.Diff(is, would, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}
