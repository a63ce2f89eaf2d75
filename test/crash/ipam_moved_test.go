package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// locked opens and locks the file, as a program does that works on it.
func locked(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	must(t, flock.Lock(t.Context(), f, flock.Exclusive))
	return f
}

// haveOpen waits until these programs have the file open. Somebody else holds its lock.
func haveOpen(t *testing.T, all []*ipamRun, f *os.File) {
	t.Helper()
	info, err := f.Stat()
	must(t, err)
	for _, b := range all {
		dir := fmt.Sprintf("/proc/%d/fd", b.cmd.Process.Pid)
		await(t, b.id+" waits for "+f.Name(), func() bool {
			files, _ := os.ReadDir(dir)
			return slices.ContainsFunc(files, func(d os.DirEntry) bool {
				open, err := os.Stat(filepath.Join(dir, d.Name()))
				return err == nil && os.SameFile(open, info)
			})
		})
	}
}

// ipamRun is a call of relink-ipam that runs beside the test.
type ipamRun struct {
	claim
	*background
	ended bool
	err   error
}

// begin starts one call for each of the pods.
func (p *pool) begin(t *testing.T, command string, pods ...string) []*ipamRun {
	t.Helper()
	var all []*ipamRun
	for _, pod := range pods {
		c := p.claim(pod, pod)
		all = append(all, &ipamRun{claim: c, background: start(t, c.plugin(command, ""))})
	}
	return all
}

// wait waits for the end of the call.
func (c *ipamRun) wait() error {
	if !c.ended {
		c.ended, c.err = true, <-c.done
	}
	return c.err
}

// failed waits for the end of the call, and returns the code and the text of its error.
func (c *ipamRun) failed(t *testing.T) (code uint, msg string) {
	t.Helper()
	if err := c.wait(); err == nil {
		t.Errorf("%s did not fail: %s", c.id, &c.out)
	}
	var e struct {
		Code uint
		Msg  string
	}
	if err := json.Unmarshal(c.out.Bytes(), &e); err != nil {
		t.Errorf("%s: %v: %s", c.id, err, &c.out)
	}
	return e.Code, e.Msg
}

// haveTheirOwn waits for the ADDs. It expects that each was told an address that no other was told, and that the
// present store has it.
func (p *pool) haveTheirOwn(t *testing.T, adds []*ipamRun) {
	t.Helper()
	given := map[netip.Addr]string{}
	for _, c := range adds {
		err := c.wait()
		told, unread := printed(c.out.Bytes())
		if err != nil || unread != nil {
			t.Errorf("ADD of %s: %v, %v: %s", c.id, err, unread, &c.out)
			continue
		}
		if other, ok := given[told[0]]; ok {
			t.Errorf("%s is given to %s and to %s", told[0], other, c.id)
		}
		given[told[0]] = c.id
		l, err := p.store(t).Get(t.Context(), told[0])
		if err != nil || !slices.Equal(holderIDs(l), []string{c.id}) {
			t.Errorf("%s was told %s, the store has %+v, %v", c.id, told[0], l, err)
		}
	}
	p.sound(t)
}

// backup copies the store to another file, which can replace it.
func (p *pool) backup(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(p.path())
	must(t, err)
	path := filepath.Join(filepath.Dir(p.dir), name)
	must(t, os.WriteFile(path, b, 0o600))
	return path
}

// numbered returns n names of pods.
func numbered(name string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%s%d", name, i))
	}
	return all
}

// Somebody restores a backup while others wait for the store. The backup then has its own leases, and those that were
// told to the others.
func TestIPAMStoreIsExchangedWhileItIsWaitedFor(t *testing.T) {
	t.Parallel()
	p := newPool(t, plain+wide)
	added(t, p, "a", "b", "c")
	first, second := p.backup(t, "first"), p.backup(t, "second")
	added(t, p, "d") // The backups do not have it.
	had := locked(t, p.path())
	adds, del := p.begin(t, "ADD", numbered("new", 20)...), p.begin(t, "DEL", "b")
	all := append(slices.Clone(adds), del...)
	haveOpen(t, all, had)
	must(t, os.Rename(first, p.path()))
	// The same once more, while they wait for the backup.
	now := locked(t, p.path())
	must(t, had.Close())
	haveOpen(t, all, now)
	must(t, os.Rename(second, p.path()))
	must(t, now.Close())
	del[0].ends(t)
	p.haveTheirOwn(t, adds)
	counts := map[string]int{}
	for _, l := range p.list(t) {
		counts[string(l.State)+" by "+strings.Join(holderIDs(l), " and ")]++
	}
	want := map[string]int{"held by a": 1, "quarantined by ": 1, "held by c": 1}
	for _, pod := range numbered("new", 20) {
		want["held by "+pod] = 1
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("leases (-want +got):\n%s", diff)
	}
	p.nothingElse(t)
}

// Somebody moves a damaged store away, and nothing replaces it. The programs that waited for it fail, so a runtime
// tries again. They write to no store.
func TestIPAMStoreIsMovedAwayWhileItIsWaitedFor(t *testing.T) {
	t.Parallel()
	p := newPool(t, plain+wide)
	added(t, p, "a", "b")
	away := filepath.Join(filepath.Dir(p.dir), "away")
	before, err := os.ReadFile(p.path())
	must(t, err)
	had := locked(t, p.path())
	all := append(p.begin(t, "ADD", numbered("new", 20)...), p.begin(t, "DEL", "b")...)
	haveOpen(t, all, had)
	must(t, os.Rename(p.path(), away))
	must(t, had.Close())
	const tryAgain = 11
	for _, c := range all {
		code, msg := c.failed(t)
		if code != tryAgain || !strings.Contains(msg, "somebody moved it away while it was waited for") {
			t.Errorf("%s: code %d: %s", c.id, code, msg)
		}
	}
	after, err := os.ReadFile(away)
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("what was moved away is changed: %v", err)
	}
	if _, err := p.store(t).List(t.Context()); !errors.Is(err, lease.ErrNotLeased) {
		t.Errorf("there is a store: %v", err)
	}
	must(t, p.claim("b", "b").del())
	p.haveTheirOwn(t, p.begin(t, "ADD", numbered("new", 20)...))
}
