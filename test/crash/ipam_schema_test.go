package crash

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/ipam"
)

// buildOlder builds the last relink-ipam of schema 1 into dir, from its sources in testdata. root is the directory of
// the module's go.mod. The sources have no go.mod of their own, so they need only modules that are already there.
func buildOlder(root, dir string) error {
	sources, err := os.MkdirTemp("", "relink-schema1-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(sources) }()
	for _, words := range [][]string{
		{"tar", "-xzf", "testdata/schema1.tar.gz", "-C", sources},
		{"cp", filepath.Join(root, "go.mod"), filepath.Join(root, "go.sum"), sources},
		{"go", "-C", sources, "build", "-trimpath", "-o", filepath.Join(dir, "relink-ipam"), "./plugins/ipam/relink"},
	} {
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("the relink-ipam of schema 1: %s: %w\n%s", strings.Join(words, " "), err, out)
		}
	}
	return nil
}

// ofOlder lets the older program do the work of before.
func ofOlder(before func(*testing.T, *pool)) func(*testing.T, *pool) {
	return func(t *testing.T, p *pool) {
		present := p.programs
		p.programs = older
		before(t, p)
		p.programs = present
		p.isOfSchema(t, "1")
	}
}

// isOfSchema expects that the store is of this schema.
func (p *pool) isOfSchema(t *testing.T, want string) {
	t.Helper()
	db, err := bolt.Open(p.path(), 0o600, &bolt.Options{ReadOnly: true})
	must(t, err)
	defer db.Close()
	must(t, db.View(func(tx *bolt.Tx) error {
		if got := tx.Bucket([]byte("meta")).Get([]byte("schema")); string(got) != want {
			t.Errorf("the store is of schema %s, want %s", got, want)
		}
		return nil
	}))
}

// migrations are the first changes to stores that the older program made.
func migrations() map[string]deed {
	full := ofOlder(func(t *testing.T, p *pool) {
		others(t, p)
		web("web1")(p).added(t)
	})
	return map[string]deed{
		"ADD":        addOf(plain+ranges(poolSize), ofOlder(others), web("web1")),
		"taken over": addOf(sticky+ranges(poolSize), full, web("web2")),
		"after a boot": addOf(sticky+ranges(poolSize), func(t *testing.T, p *pool) {
			full(t, p)
			p.inEarlierBoot(t)
		}, web("web2")),
		"DEL":        delOf(plain+ranges(poolSize), full, web("web1")),
		"sticky DEL": delOf(sticky+ranges(poolSize), full, web("web1")),
		"dual DEL":   delOf(plain+dual, full, web("web1")),
		"GC":         gcOf(plain+ranges(poolSize), full),
	}
}

// A killed migration was done completely or not at all. The next program goes on with the store in that state.
func TestIPAMMigrationKilledAtEveryStep(t *testing.T) {
	for name, d := range migrations() {
		p := newPool(t, d.keys)
		d.before(t, p)
		passed, err := traced(t, d.act(p))
		must(t, err)
		for _, at := range []step{{"store being migrated", 1}, {"store migrated", 1}, {"before committing", 1}} {
			if !slices.Contains(passed, at) {
				t.Errorf("%s does not pass %s", name, at)
			}
		}
		p.isOfSchema(t, "3")
	}
	eachDeed(t, migrations())
}

func TestIPAMMigrationKilledBeforeEverySystemCall(t *testing.T) {
	t.Parallel()
	eachSystemCall(t, map[string]wayOfDeed{
		"ADD":          {migrations()["ADD"], thenDEL},
		"taken over":   {migrations()["taken over"], repeatADD},
		"after a boot": {migrations()["after a boot"], repeatADD},
		"DEL":          {migrations()["DEL"], repeatDEL},
		"GC":           {migrations()["GC"], repeatGC},
	})
}

// tooOld is the older program's message about a newer store.
const tooOld = `it is of schema "3", this relink knows "1": use the relink that wrote it or a newer one`

// wasTooOld expects that the older program failed because it does not know the store's schema.
func wasTooOld(t *testing.T, command string, c *ipamRun) {
	t.Helper()
	want := uint(6)
	if command == "STATUS" {
		want = 50
	}
	if code, msg := c.failed(t); code != want || !strings.Contains(msg, tooOld) {
		t.Errorf("%s of %s: code %d: %s", command, c.id, code, msg)
	}
}

// During an upgrade of relink, the runtime runs old and new programs. The old ones work until a new one has changed
// something. After that they fail, and their error says why. Exactly those that were told an address have it.
func TestIPAMOldAndNewProgramsAtOnce(t *testing.T) {
	t.Parallel()
	worked, rounds := 0, times(4)
	for i := range rounds {
		p := newPool(t, []string{plain, sticky + plain}[i%2]+wide)
		old := *p
		old.programs = older
		added(t, &old, "a", "b", "c")
		// Reading changes nothing.
		must(t, ipam.Status(t.Context(), p.claim("a", "a").skelArgs("")))
		_, err := output(p.claim("a", "a").plugin("CHECK", ""))
		must(t, err)
		p.sound(t)
		p.isOfSchema(t, "1")
		deleted(t, &old, "b")
		had := p.leases(t)
		worked += p.oldAndNew(t, &old, i >= rounds/2)
		p.isOfSchema(t, "3")
		now := p.leases(t)
		for _, line := range had {
			if !slices.Contains(now, line) {
				t.Errorf("no more, or not as it was:\n%s", line)
			}
		}
		p.refuses(t, &old)
		for _, pod := range []string{"a", "c", "old0", "new0"} {
			must(t, p.claim(pod, pod).del())
		}
		p.sound(t)
	}
	t.Logf("%d of %d old programs came before the first new one", worked, eachKind*rounds)
}

// eachKind is the number of old programs that run at once. There are as many new ones.
const eachKind = 25

// oldAndNew attaches pods with old and new programs at the same time. It returns how many old ones came before the
// first new one. A new program may be the first to get the store. With oldFirst, the new ones start only after the
// first old one has ended.
func (p *pool) oldAndNew(t *testing.T, old *pool, oldFirst bool) (worked int) {
	t.Helper()
	lock := locked(t, p.path())
	olds := old.begin(t, "ADD", numbered("old", eachKind)...)
	haveOpen(t, olds, lock)
	var news []*ipamRun
	if !oldFirst {
		news = p.begin(t, "ADD", numbered("new", eachKind)...)
		haveOpen(t, news, lock)
	}
	must(t, lock.Close())
	if oldFirst {
		_ = olds[0].wait()
		news = p.begin(t, "ADD", numbered("new", eachKind)...)
	}
	told := p.toldOf(t, olds, news)
	if oldFirst && len(told) == len(news) {
		t.Error("no old program worked, although no new one had been there")
	}
	held := 0
	for _, l := range p.list(t) {
		held += len(l.Holders)
	}
	if others := 2; held != len(told)+others {
		t.Errorf("%d were told an address, %d hold one, %d of them since before", len(told), held, others)
	}
	return len(told) - len(news)
}

// toldOf returns the calls that were told an address: all new ones, and the old ones that came before them. It expects
// that each has an address of its own.
func (p *pool) toldOf(t *testing.T, olds, news []*ipamRun) []*ipamRun {
	t.Helper()
	told := slices.Clone(news)
	for _, c := range olds {
		if c.wait() == nil {
			told = append(told, c)
			continue
		}
		wasTooOld(t, "ADD", c)
	}
	p.haveTheirOwn(t, told)
	return told
}

// The first program that comes makes the store.
func TestIPAMOldAndNewProgramsMakeAStoreAtOnce(t *testing.T) {
	t.Parallel()
	for range times(3) {
		p := newPool(t, plain+wide)
		old := *p
		old.programs = older
		must(t, os.Mkdir(p.dir, 0o700))
		lock := locked(t, p.dir)
		olds, news := old.begin(t, "ADD", numbered("old", eachKind)...), p.begin(t, "ADD", numbered("new", eachKind)...)
		haveOpen(t, slices.Concat(olds, news), lock)
		must(t, lock.Close())
		p.toldOf(t, olds, news)
		p.isOfSchema(t, "3")
		p.nothingElse(t)
		p.refuses(t, &old)
	}
}

// refuses expects that no old program can use the store any more, and that none changes it.
func (p *pool) refuses(t *testing.T, old *pool) {
	t.Helper()
	before, err := os.ReadFile(p.path())
	must(t, err)
	for _, command := range []string{"ADD", "DEL", "CHECK", "STATUS"} {
		wasTooOld(t, command, old.begin(t, command, "a")[0])
	}
	after, err := os.ReadFile(p.path())
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("an old program changed the store: %v", err)
	}
}
