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

// buildOlder builds the last relink-ipam of schema 1 into dir, from its sources in testdata. root
// is where the module's go.mod is: the sources have none of their own, so that they need no other
// modules than those that are there.
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

// ofOlder has the older program do what before does.
func ofOlder(before func(*testing.T, *pool)) func(*testing.T, *pool) {
	return func(t *testing.T, p *pool) {
		present := p.programs
		p.programs = older
		before(t, p)
		p.programs = present
		p.isOfSchema(t, "1")
	}
}

// isOfSchema says of which schema the store is.
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

// migrations are first changes of stores that the older program made.
func migrations() map[string]deed {
	full := ofOlder(func(t *testing.T, p *pool) {
		others(t, p)
		_, err := web("web1")(p).add()
		must(t, err)
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

// A migration that is killed was done whole or not at all. The next program goes on with what
// there is.
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
		p.isOfSchema(t, "2")
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

// tooOld is what the older program says of a newer store.
const tooOld = `it is of schema "2", this relink knows "1": use the relink that wrote it or a newer one`

// wasTooOld says that the older program failed as one that can't know the store.
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

// While relink is upgraded the runtime runs old and new programs. The old ones work until a new
// one has changed something, and fail then, with an error that says why. Whoever was told an
// address has it, and nobody else.
func TestIPAMOldAndNewProgramsAtOnce(t *testing.T) {
	t.Parallel()
	worked, rounds := 0, times(4)
	for i := range rounds {
		p := newPool(t, []string{plain, sticky + plain}[i%2]+wide)
		old := *p
		old.programs = older
		added(t, &old, "a", "b", "c")
		// A look changes nothing.
		must(t, ipam.Status(t.Context(), p.claim("a", "a").skelArgs("")))
		_, err := output(p.claim("a", "a").plugin("CHECK", ""))
		must(t, err)
		p.sound(t)
		p.isOfSchema(t, "1")
		deleted(t, &old, "b")
		had := p.leases(t)
		worked += p.oldAndNew(t, &old, i >= rounds/2)
		p.isOfSchema(t, "2")
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

// eachKind is how many old programs there are at once, and as many new ones.
const eachKind = 25

// oldAndNew has pods attached by old and by new programs at once, and returns how many of the
// old ones came before the first new one. Of those that wait for the store a new one may well be
// the first to get it: with oldFirst, the new ones come when the old ones have begun.
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

// toldOf returns those that were told an address, all of the new ones and those of the old ones
// that came before them, and says that each has its own.
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

// The store is made by whoever comes first.
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
		p.isOfSchema(t, "2")
		p.nothingElse(t)
		p.refuses(t, &old)
	}
}

// refuses says that no old program can do anything with the store any more, and that none
// touches it.
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
