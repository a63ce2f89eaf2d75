package ipam

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
	"github.com/relink-cni/relink/pkg/flock"
)

// importInto returns an empty store of the network lan.
func importInto(t testing.TB) *Store {
	t.Helper()
	s, err := OpenStore(t.TempDir(), "lan")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// hostLocalWith makes a directory of host-local with the files.
func hostLocalWith(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func imported(t testing.TB, s *Store, dir string) ImportReport {
	t.Helper()
	r, err := s.Import(context.Background(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func listed(t testing.TB, s *Store) []Lease {
	t.Helper()
	all, err := s.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// onLan is an attachment of the network lan.
func onLan(containerID, ifName string) attachment.Key {
	return attachment.Key{Network: "lan", ContainerID: containerID, IfName: ifName}
}

func TestParseHostLocal(t *testing.T) {
	const form = ": must start with a letter or a digit and contain only letters, digits, '_', '.' and '-'"
	type whose struct{ ContainerID, IfName, Torn string }
	for name, test := range map[string]struct {
		text string
		want whose
	}{
		"as host-local writes it":      {"c1\r\neth0", whose{"c1", "eth0", ""}},
		"white space at the ends":      {" c1 \r\neth0\n", whose{"c1", "eth0", ""}},
		"a line break of Unix":         {"c1\neth0", whose{"c1", "eth0", ""}},
		"of an old host-local":         {"c1", whose{"c1", "eth0", ""}},
		"of an old one, edited":        {"c1\n", whose{"c1", "eth0", ""}},
		"without an interface":         {"c1\r\n", whose{"c1", "eth0", ""}},
		"the longest container ID":     {strings.Repeat("a", 255) + "\r\neth0", whose{strings.Repeat("a", 255), "eth0", ""}},
		"empty":                        {"", whose{Torn: "it is empty"}},
		"white space alone":            {" \n", whose{Torn: "it has no container ID"}},
		"without a container ID":       {"\r\neth0", whose{Torn: "it has no container ID"}},
		"zeros, as after a power loss": {"\x00\x00\x00", whose{Torn: `container ID "\x00\x00\x00"` + form}},
		"zeros at the end":             {"c1\r\net\x00\x00", whose{Torn: `interface name "et\x00\x00": contains '/', ':', white space or a control character`}},
		"a container ID that goes up":  {"../c1\r\neth0", whose{Torn: `container ID "../c1"` + form}},
		"an interface that goes up":    {"c1\r\n../eth0", whose{Torn: `interface name "../eth0": contains '/', ':', white space or a control character`}},
		"three lines":                  {"c1\r\neth0\r\nmore", whose{Torn: `interface name "eth0\r\nmore": contains '/', ':', white space or a control character`}},
		"too long a container ID":      {strings.Repeat("a", 256), whose{Torn: `container ID "` + strings.Repeat("a", 256) + `": is 256 characters long, at most 255 are allowed`}},
		"too long an interface":        {"c1\r\nsixteen-letters-", whose{Torn: `interface name "sixteen-letters-": has 16 characters, the kernel allows 15`}},
		"too large":                    {strings.Repeat("a", 1025), whose{Torn: "it has more than 1024 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got whose
			var err error
			if got.ContainerID, got.IfName, err = parseHostLocal([]byte(test.text)); err != nil {
				got.Torn = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseHostLocal(f *testing.F) {
	for _, text := range []string{"c1\r\neth0", "c1", "", "\r\neth0", "c1\r\n", "c1\neth0", "\x00\x00", "c1\r\neth0\r\n", " c1 \r\n eth0 "} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		containerID, ifName, err := parseHostLocal(b)
		if err != nil {
			if containerID != "" || ifName != "" {
				t.Errorf("%q is torn, and %q's", b, containerID)
			}
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("%q is not one line", err)
			}
			return
		}
		key := onLan(containerID, ifName)
		if ifName == "" {
			key.IfName = "eth0"
		}
		if err := key.Validate(); err != nil {
			t.Errorf("%q is %v: %v", b, key, err)
		}
		// What is read is what host-local would look for.
		text := strings.TrimSuffix(containerID+"\r\n"+ifName, "\r\n")
		if id, name, err := parseHostLocal([]byte(text)); id != containerID || name != ifName || err != nil {
			t.Errorf("%q is read as %q, %q, %v", text, id, name, err)
		}
	})
}

// What becomes of a file depends on what its address is before.
func TestImportDecides(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	written := now.Add(-time.Hour)
	a := netip.MustParseAddr("10.3.0.5")
	im := importer{store: &Store{network: "lan"}, bootID: "this boot", dir: "/networks/lan"}
	eth0 := hostLocalFile{address: a, containerID: "c1", ifName: "eth0", written: written}
	torn := hostLocalFile{address: a, torn: "it is empty", written: written}
	web := attachment.Pod{Namespace: "shop", Name: "web-0"}.Owner()
	held := func(id, ifName string) Lease {
		return Lease{Address: a, State: Held, Attachment: onLan(id, ifName), BootID: "this boot"}
	}
	newly := func(ifName string) Lease {
		l := held("c1", ifName)
		l.Origin, l.AcquiredAt, l.Policy = Imported, written, Policy{Quarantine: time.Minute}
		return l
	}
	back := Lease{
		Address: a, State: Reserved, Attachment: onLan("", ""), ReleasedAt: now,
		Why: "a pod may have it by host-local's /networks/lan/10.3.0.5, which is torn: it is empty",
	}
	quarantined := func(id string) Lease {
		return Lease{Address: a, State: Quarantined, Attachment: onLan(id, "eth0"), Why: "released", Until: now.Add(time.Minute)}
	}
	for name, test := range map[string]struct {
		file  hostLocalFile
		was   Lease
		state ImportState
		why   string
		put   Lease
	}{
		"free":                                    {eth0, Lease{}, ImportDone, "", newly("eth0")},
		"held as the file says":                   {eth0, held("c1", "eth0"), ImportPresent, "", Lease{}},
		"held by another sandbox":                 {eth0, held("c2", "eth0"), ImportConflict, "held by eth0 of c2 on lan", Lease{}},
		"held by another interface":               {eth0, held("c1", "net1"), ImportConflict, "held by net1 of c1 on lan", Lease{}},
		"reserved for a pod":                      {eth0, Lease{State: Reserved, Owner: web}, ImportConflict, "reserved for pod shop/web-0", Lease{}},
		"reserved for its pod since":              {eth0, Lease{State: Reserved, Owner: web, Attachment: onLan("c1", "eth0")}, ImportPresent, "given up since, and reserved for pod shop/web-0", Lease{}},
		"released since":                          {eth0, quarantined("c1"), ImportPresent, "given up since, and in quarantine: released", Lease{}},
		"released by another":                     {eth0, quarantined("c2"), ImportDone, "", newly("eth0")},
		"held back before the file was repaired":  {eth0, back, ImportDone, "", newly("eth0")},
		"torn and free":                           {torn, Lease{}, ImportTorn, "it is empty: held back, as a pod may have the address", back},
		"torn and in quarantine, which ends":      {torn, quarantined("c1"), ImportTorn, "it is empty: held back, as a pod may have the address", back},
		"torn and held back already":              {torn, back, ImportTorn, "it is empty: held back already", Lease{}},
		"torn and held":                           {torn, held("c1", "eth0"), ImportTorn, "it is empty, and its address is held by eth0 of c1 on lan", Lease{}},
		"torn and reserved, which might end soon": {torn, Lease{State: Reserved, Owner: web}, ImportTorn, "it is empty, and its address is reserved for pod shop/web-0", Lease{}},
	} {
		t.Run(name, func(t *testing.T) {
			file, put := im.file(test.file, test.was, now)
			if file.File != "10.3.0.5" || file.Address != a || file.State != test.state || file.Why != test.why {
				t.Errorf("got %+v, want %s: %q", file, test.state, test.why)
			}
			if diff := cmp.Diff(test.put, put, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestImportLeasesAllFamilies(t *testing.T) {
	s := importInto(t)
	dir := hostLocalWith(t, map[string]string{
		"10.3.0.2": "c1\r\neth0", "fd00:3::5": "c1\r\neth0", "lock": "",
		"last_reserved_ip.0": "10.3.0.2", "last_reserved_ip.1": "fd00:3::5",
		// These host-local never looks for.
		"fd00:3:0::6": "c2\r\neth0", "::ffff:10.3.0.3": "c2\r\neth0", "fe80::1%eth0": "c2\r\neth0",
	})
	written := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if err := os.Chtimes(filepath.Join(dir, "10.3.0.2"), written, written); err != nil {
		t.Fatal(err)
	}
	r := imported(t, s, dir)
	if want := []ImportedLast{{0, netip.MustParseAddr("10.3.0.2")}, {1, netip.MustParseAddr("fd00:3::5")}}; !slices.Equal(r.Last, want) {
		t.Errorf("last given: %v, want %v", r.Last, want)
	}
	const unknown = "host-local has no files of this name"
	want := []ImportedFile{
		{File: "10.3.0.2", Address: netip.MustParseAddr("10.3.0.2"), Attachment: onLan("c1", "eth0"), State: ImportDone},
		{File: "fd00:3::5", Address: netip.MustParseAddr("fd00:3::5"), Attachment: onLan("c1", "eth0"), State: ImportDone},
		{File: "::ffff:10.3.0.3", State: ImportIgnored, Why: unknown},
		{File: "fd00:3:0::6", State: ImportIgnored, Why: unknown},
		{File: "fe80::1%eth0", State: ImportIgnored, Why: unknown},
	}
	if !slices.Equal(r.Files, want) {
		t.Errorf("files: %+v, want %+v", r.Files, want)
	}
	if r.Well() {
		t.Error("files that are ignored are called well")
	}
	all := listed(t, s)
	if len(all) != 2 || !all[0].HeldBy(onLan("c1", "eth0")) || !all[1].HeldBy(onLan("c1", "eth0")) || !all[0].AcquiredAt.Equal(written) {
		t.Errorf("leases: %+v", all)
	}
}

// The next address comes after the one that host-local gave last, but not again after
// relink has given.
func TestImportGoesOnAfterTheLastGiven(t *testing.T) {
	s := importInto(t)
	dir := hostLocalWith(t, map[string]string{"10.3.0.2": "c1\r\neth0", "last_reserved_ip.0": "10.3.0.40"})
	imported(t, s, dir)
	subnet := netip.MustParsePrefix("10.3.0.0/24")
	set := RangeSet{{Span: Span{netip.MustParseAddr("10.3.0.1"), netip.MustParseAddr("10.3.0.254")}, Subnet: subnet, Gateway: netip.MustParseAddr("10.3.0.1")}}
	for _, want := range []string{"10.3.0.41", "10.3.0.42"} {
		var given []Lease
		err := s.update(context.Background(), func(l *leases) (err error) {
			given, err = l.allocate(request{attachment: onLan("of-"+want, "eth0"), sets: []RangeSet{set}})
			return err
		})
		if err != nil || given[0].Address != netip.MustParseAddr(want) {
			t.Errorf("given %v, %v; want %s", given, err, want)
		}
		if r := imported(t, s, dir); len(r.Last) > 0 {
			t.Errorf("an import after that sets %v", r.Last)
		}
	}
}

// What an old host-local gave names no interface: it is eth0's, as pods have one.
func TestImportOfAnOldHostLocal(t *testing.T) {
	s := importInto(t)
	imported(t, s, hostLocalWith(t, map[string]string{"10.3.0.2": "c1", "10.3.0.3": "c1\r\nnet1"}))
	for _, step := range []struct {
		ifName string
		left   []State
	}{{"net2", []State{Held, Held}}, {"net1", []State{Held, Quarantined}}, {"eth0", []State{Quarantined, Quarantined}}} {
		err := s.change(t.Context(), func(l *leases) error { return l.releaseAll(onLan("c1", step.ifName)) })
		if err != nil {
			t.Fatal(err)
		}
		var left []State
		for _, l := range listed(t, s) {
			left = append(left, l.State)
		}
		if !slices.Equal(left, step.left) {
			t.Errorf("after the DEL of %s: %v, want %v", step.ifName, left, step.left)
		}
	}
}

func TestImportIsAllOrNothing(t *testing.T) {
	s := importInto(t)
	dir := hostLocalWith(t, map[string]string{"10.3.0.2": "c1\r\neth0", "10.3.0.3": ""})
	ctx := context.Background()
	r, err := s.Import(ctx, dir, true)
	if err != nil || r.Files[0].State != ToImport || r.Files[1].State != ImportTorn {
		t.Errorf("dry run: %+v, %v", r, err)
	}
	if _, err := os.Stat(s.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dry run has made the store: %v", err)
	}
	if _, err := s.Reserve(ctx, netip.MustParseAddr("10.3.0.9"), attachment.Pod{Namespace: "shop", Name: "web-0"}.Owner(), 0); err != nil {
		t.Fatal(err)
	}
	if r, err = s.Import(ctx, dir, true); err != nil || r.Files[0].State != ToImport || len(listed(t, s)) != 1 {
		t.Errorf("dry run beside a lease: %+v, %v, leases %v", r, err, listed(t, s))
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Import(done, dir, false); !errors.Is(err, context.Canceled) || len(listed(t, s)) != 1 {
		t.Errorf("interrupted: %v, leases %v", err, listed(t, s))
	}
}

func TestImportOfAFullNetworkTwiceAtOnce(t *testing.T) {
	const n = 60_000
	dir := t.TempDir()
	want := map[netip.Addr]string{}
	a := netip.MustParseAddr("10.3.0.2")
	for i := range n {
		want[a] = fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, i)))
		if err := os.WriteFile(filepath.Join(dir, a.String()), []byte(want[a]+"\r\neth0"), 0o600); err != nil {
			t.Fatal(err)
		}
		a = a.Next()
	}
	s := importInto(t)
	var counts sync.Map
	var both sync.WaitGroup
	for i := range 2 {
		both.Go(func() {
			count := map[ImportState]int{}
			r, err := s.Import(context.Background(), dir, false)
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
	total := map[ImportState]int{}
	counts.Range(func(_, v any) bool {
		for state, c := range v.(map[ImportState]int) {
			if c != n {
				t.Errorf("an import has %d files %s, want all %d or none", c, state, n)
			}
			total[state] += c
		}
		return true
	})
	if total[ImportDone] != n || total[ImportPresent] != n {
		t.Errorf("both together: %v, want %d imported and already there", total, n)
	}
	all := listed(t, s)
	if len(all) != n {
		t.Fatalf("%d leases, want %d", len(all), n)
	}
	for _, l := range all {
		if !l.HeldBy(onLan(want[l.Address], "eth0")) || l.Origin != Imported {
			t.Fatalf("%+v, want it held by %s", l, want[l.Address])
		}
	}
	// Each is found by its attachment, and all are one run.
	err := s.view(context.Background(), func(l *leases) error {
		for a, id := range want {
			if held, err := l.heldBy(onLan(id, "eth0")); err != nil || len(held) != 1 || held[0].Address != a {
				return fmt.Errorf("%s holds %v, want %s: %w", id, held, a, err)
			}
		}
		run, _ := l.run(netip.MustParseAddr("10.3.0.2"))
		if want := (Span{netip.MustParseAddr("10.3.0.2"), all[n-1].Address}); run != want {
			return fmt.Errorf("the run is %s, want %s", run, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// host-local is kept out while the directory is read, and waited for, but not for ever.
func TestImportAndHostLocalExcludeEachOther(t *testing.T) {
	s := importInto(t)
	dir := hostLocalWith(t, map[string]string{"10.3.0.2": "c1\r\neth0", "lock": ""})
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := flock.Try(f, flock.Exclusive); err != nil {
		t.Fatal(err)
	}
	s.wait = 20 * time.Millisecond
	_, err = s.Import(context.Background(), dir, false)
	want := "lock host-local's directory: " + dir + "/lock: in use by " + flock.HoldersOf(f)[0].String() + " for more than 20ms: wait for host-local, or end it"
	if !errors.Is(err, ErrBusy) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	s.wait = lockWait
	time.AfterFunc(20*time.Millisecond, func() { _ = f.Close() })
	if r := imported(t, s, dir); !r.Well() {
		t.Errorf("after host-local: %+v", r)
	}
	unlock, err := lockHostLocal(context.Background(), dir, lockWait)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	again, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := flock.Try(again, flock.Exclusive); !errors.Is(err, ErrBusy) {
		t.Errorf("host-local gets in meanwhile: %v", err)
	}
}

// A file that can't be read may be of a pod that is alive, and one that is a pipe is
// not waited for.
func TestImportHoldsBackWhatCannotBeRead(t *testing.T) {
	s := importInto(t)
	dir := hostLocalWith(t, map[string]string{"10.3.0.2": "c1\r\neth0", "large": "", "10.3.0.4": strings.Repeat("a", 5000)})
	if err := os.Symlink(filepath.Join(dir, "10.3.0.2"), filepath.Join(dir, "10.3.0.3")); err != nil {
		t.Fatal(err)
	}
	r := imported(t, s, dir)
	var got []string
	for _, f := range r.Files {
		got = append(got, fmt.Sprintf("%s %s %s", f.File, f.State, f.Why))
	}
	want := []string{
		"10.3.0.2 imported ",
		"10.3.0.3 torn it is no regular file: held back, as a pod may have the address",
		"10.3.0.4 torn it has more than 1024 bytes: held back, as a pod may have the address",
		"large ignored host-local has no files of this name",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if all := listed(t, s); len(all) != 3 || all[1].State != Reserved || all[2].State != Reserved {
		t.Errorf("leases: %+v", all)
	}
	f := hostLocalFile{address: netip.MustParseAddr("10.3.0.9")}
	if !f.read(dir) {
		t.Error("a file that is gone is taken for torn")
	}
	_, _, err := readSmall(dir)
	if want := "it can't be read: read " + dir + ": is a directory"; err == nil || err.Error() != want {
		t.Errorf("a directory: %v, want %s", err, want)
	}
}

// A look shows what a change would find, even if it is the first in a boot.
func TestListAfterABoot(t *testing.T) {
	s := importInto(t)
	dir := hostLocalWith(t, map[string]string{"10.3.0.2": "c1\r\neth0", "10.3.0.3": ""})
	imported(t, s, dir)
	s.bootID = "the next boot"
	all := listed(t, s)
	if len(all) != 2 || all[0].State != Quarantined || all[0].Why != "held in an earlier boot" || all[1].State != Reserved {
		t.Errorf("leases: %+v", all)
	}
	l, err := s.Get(context.Background(), netip.MustParseAddr("10.3.0.2"))
	if err != nil || l.State != Quarantined {
		t.Errorf("10.3.0.2: %+v, %v", l, err)
	}
	if r := imported(t, s, dir); r.Files[0].State != ImportPresent || r.Files[0].Why != "given up since, and in quarantine: held in an earlier boot" {
		t.Errorf("an import in the next boot: %+v", r.Files)
	}
}

// A reservation that has ended is nobody's, even if it is not cleared away.
func TestImportTakesWhatHasEnded(t *testing.T) {
	s := importInto(t)
	dir := hostLocalWith(t, map[string]string{"10.3.0.2": "c1\r\neth0"})
	owner := attachment.Pod{Namespace: "shop", Name: "web-0"}.Owner()
	if _, err := s.Reserve(context.Background(), netip.MustParseAddr("10.3.0.2"), owner, time.Hour); err != nil {
		t.Fatal(err)
	}
	if r := imported(t, s, dir); r.Files[0].State != ImportConflict {
		t.Errorf("before it ends: %+v", r.Files)
	}
	s.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	if r := imported(t, s, dir); r.Files[0].State != ImportDone || !listed(t, s)[0].HeldBy(onLan("c1", "eth0")) {
		t.Errorf("after it has ended: %+v, leases %+v", r.Files, listed(t, s))
	}
}
