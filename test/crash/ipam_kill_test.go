package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/ipam"
)

// poolSize is the number of attachments that the pools of these tests have addresses for.
const poolSize = 5

// ipamOperation is something that relink-ipam does, and what a runtime may do next.
type ipamOperation struct {
	keys string
	// before prepares a new pool for the operation.
	before func(t *testing.T, p *pool)
	act    func(p *pool) *exec.Cmd
	// next are the ways in which the runtime goes on, whether the operation was killed or not.
	next map[string]func(t *testing.T, p *pool)
	// repeats are the ways of next that repeat the operation. After these, everything is as without the kill.
	repeats []string
}

const (
	plain      = `"quarantine": "1h", `
	atOnce     = `"quarantine": "0s", `
	sticky     = `"sticky": "pod", `
	dual       = `"ranges": [[{"subnet": "10.7.0.0/28", "rangeStart": "10.7.0.10"}], [{"subnet": "fd00:7::/64", "rangeStart": "fd00:7::a", "rangeEnd": "fd00:7::e"}]]`
	repeatADD  = "ADD again"
	repeatDEL  = "DEL again"
	repeatGC   = "GC again"
	thenDEL    = "DEL"
	lateDEL    = "ADD again, late DEL of the sandbox before"
	lateDELToo = "DEL, and late DEL of the sandbox before"
)

// added attaches the pods, each in a sandbox of its name.
func added(t *testing.T, p *pool, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		p.claim(pod, pod).added(t)
	}
}

// deleted detaches the pods.
func deleted(t *testing.T, p *pool, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		p.claim(pod, pod).deleted(t)
	}
}

// addOf is the ADD of the claim. Afterwards the runtime repeats the ADD, or sends a DEL.
func addOf(keys string, before func(*testing.T, *pool), c func(*pool) claim) ipamOperation {
	return ipamOperation{
		keys: keys, before: before,
		act: func(p *pool) *exec.Cmd { return c(p).plugin("ADD", "") },
		next: map[string]func(*testing.T, *pool){
			repeatADD: func(t *testing.T, p *pool) {
				_, err := c(p).add()
				must(t, err)
			},
			thenDEL: func(t *testing.T, p *pool) { must(t, c(p).del()) },
		},
		repeats: []string{repeatADD},
	}
}

// web returns the sandbox id of web-0.
func web(id string) func(*pool) claim {
	return func(p *pool) claim { return p.claim(id, "web-0") }
}

// webIsHeldBy checks which of the pod's sandboxes hold its address, the oldest first.
func (p *pool) webIsHeldBy(t *testing.T, ids ...string) {
	t.Helper()
	var held []string
	for _, l := range p.list(t) {
		if l.Owner == owner("web-0") {
			held = append(held, holderIDs(l)...)
		}
	}
	if !slices.Equal(held, ids) {
		t.Errorf("the pod's address is held by %v, want %v", held, ids)
	}
}

// others adds two pods that stay and one that comes and goes.
func others(t *testing.T, p *pool) {
	added(t, p, "a", "b", "c")
	deleted(t, p, "b")
}

// ipamAdds are the kinds of ADD.
func ipamAdds() map[string]ipamOperation {
	takeover := addOf(sticky+ranges(poolSize), func(t *testing.T, p *pool) {
		others(t, p)
		web("web1")(p).added(t)
	}, web("web2"))
	takeover.next[lateDEL] = func(t *testing.T, p *pool) {
		takeover.next[repeatADD](t, p)
		p.webIsHeldBy(t, "web1", "web2")
		must(t, web("web1")(p).del())
		p.webIsHeldBy(t, "web2")
	}
	takeover.next[lateDELToo] = func(t *testing.T, p *pool) {
		must(t, web("web2")(p).del())
		p.webIsHeldBy(t, "web1")
		must(t, web("web1")(p).del())
	}
	takeover.repeats = append(takeover.repeats, lateDEL)
	return map[string]ipamOperation{
		"first in the directory": addOf(plain+ranges(poolSize), func(*testing.T, *pool) {}, web("web1")),
		"store is there":         addOf(plain+ranges(poolSize), others, web("web1")),
		"no quarantine":          addOf(atOnce+ranges(poolSize), others, web("web1")),
		"two families":           addOf(plain+dual, others, web("web1")),
		"taken over":             takeover,
		"reserved for the owner": addOf(sticky+ranges(poolSize), func(t *testing.T, p *pool) {
			web("web1")(p).added(t)
			web("web1")(p).deleted(t)
			others(t, p)
		}, web("web2")),
		"repeated": addOf(plain+ranges(poolSize), func(t *testing.T, p *pool) {
			others(t, p)
			web("web1")(p).added(t)
		}, web("web1")),
		"requested": addOf(plain+ranges(poolSize), others, func(p *pool) claim {
			c := web("web1")(p)
			c.args = ";IP=10.7.0.14"
			return c
		}),
		"none free but in quarantine": addOf(plain+ranges(poolSize), func(t *testing.T, p *pool) {
			added(t, p, "a", "b", "c", "d", "e")
			deleted(t, p, "d", "b")
		}, web("web1")),
		"after a boot": addOf(plain+ranges(poolSize), func(t *testing.T, p *pool) {
			added(t, p, "a", "b", "c", "d", "e")
			p.inEarlierBoot(t)
		}, web("web1")),
		"after a boot, no quarantine": addOf(atOnce+ranges(poolSize), func(t *testing.T, p *pool) {
			added(t, p, "a", "b", "c", "d", "e")
			p.inEarlierBoot(t)
		}, web("web1")),
		"after a boot, the owner's": addOf(sticky+ranges(poolSize), func(t *testing.T, p *pool) {
			others(t, p)
			web("web1")(p).added(t)
			p.inEarlierBoot(t)
		}, web("web2")),
	}
}

// delOf is a DEL of an attachment that before has added.
func delOf(keys string, before func(*testing.T, *pool), c func(*pool) claim) ipamOperation {
	return ipamOperation{
		keys: keys, before: before,
		act: func(p *pool) *exec.Cmd { return c(p).plugin("DEL", "") },
		next: map[string]func(*testing.T, *pool){
			repeatDEL: func(t *testing.T, p *pool) { must(t, c(p).del()) },
			// GC is for attachments that the runtime gave up without a successful DEL.
			"GC": func(t *testing.T, p *pool) {
				p.loseSandboxes(t)
				_, err := output(c(p).plugin("GC", validAttachments("a", "c", "web2")))
				must(t, err)
			},
		},
		repeats: []string{repeatDEL},
	}
}

func ipamDels() map[string]ipamOperation {
	withOthers := func(t *testing.T, p *pool) {
		others(t, p)
		web("web1")(p).added(t)
	}
	return map[string]ipamOperation{
		"quarantine":    delOf(plain+ranges(poolSize), withOthers, web("web1")),
		"no quarantine": delOf(atOnce+ranges(poolSize), withOthers, web("web1")),
		"sticky":        delOf(sticky+ranges(poolSize), withOthers, web("web1")),
		"two families":  delOf(plain+dual, withOthers, web("web1")),
		"late": delOf(sticky+ranges(poolSize), func(t *testing.T, p *pool) {
			withOthers(t, p)
			web("web2")(p).added(t)
		}, web("web1")),
		"after a boot": delOf(plain+ranges(poolSize), func(t *testing.T, p *pool) {
			withOthers(t, p)
			p.inEarlierBoot(t)
		}, web("web1")),
	}
}

// gcOf is a GC that keeps the valid attachments: a, and those in valid. All sandboxes are gone before it, so that nothing but
// the list keeps an address.
func gcOf(keys string, before func(*testing.T, *pool), valid ...string) ipamOperation {
	gc := func(p *pool) *exec.Cmd {
		return p.claim("a", "a").plugin("GC", validAttachments(append(valid, "a")...))
	}
	return ipamOperation{
		keys: keys, act: gc,
		before: func(t *testing.T, p *pool) {
			before(t, p)
			p.loseSandboxes(t)
		},
		next: map[string]func(*testing.T, *pool){
			repeatGC: func(t *testing.T, p *pool) {
				_, err := output(gc(p))
				must(t, err)
			},
			thenDEL: func(t *testing.T, p *pool) {
				for _, id := range []string{"b", "c", "d", "web1"} {
					must(t, p.claim(id, id).del())
				}
			},
		},
		repeats: []string{repeatGC},
	}
}

func ipamGCs() map[string]ipamOperation {
	all := func(t *testing.T, p *pool) { added(t, p, "a", "b", "c", "d") }
	return map[string]ipamOperation{
		"quarantine":    gcOf(plain+ranges(poolSize), all),
		"no quarantine": gcOf(atOnce+ranges(poolSize), all),
		"sticky":        gcOf(sticky+ranges(poolSize), all),
		"two families":  gcOf(plain+dual, all),
		"taken over": gcOf(sticky+ranges(poolSize), func(t *testing.T, p *pool) {
			added(t, p, "a")
			for _, id := range []string{"web1", "web2"} {
				web(id)(p).added(t)
			}
		}, "web2"),
		"after a boot": gcOf(plain+ranges(poolSize), func(t *testing.T, p *pool) {
			all(t, p)
			p.inEarlierBoot(t)
		}),
	}
}

// A killed operation was done or not done. The next one works as usual, and no address is lost.
func TestIPAMAddKilledAtEveryStep(t *testing.T) { eachIPAMOperation(t, ipamAdds()) }
func TestIPAMDelKilledAtEveryStep(t *testing.T) { eachIPAMOperation(t, ipamDels()) }
func TestIPAMGCKilledAtEveryStep(t *testing.T)  { eachIPAMOperation(t, ipamGCs()) }

func eachIPAMOperation(t *testing.T, operations map[string]ipamOperation) {
	t.Parallel()
	for name, d := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for way := range d.next {
				t.Run(way, func(t *testing.T) { d.killAtEveryStep(t, way) })
			}
		})
	}
}

// outcome is the state of the store after an operation that was done or left out, and its state after the runtime went on.
type outcome struct{ then, next []string }

// undisturbed is the outcome without a kill, with the operation done or left out.
func (d ipamOperation) undisturbed(t *testing.T, way string, done bool) outcome {
	t.Helper()
	p := newPool(t, d.keys)
	d.before(t, p)
	if done {
		_, err := output(d.act(p))
		must(t, err)
	}
	o := outcome{then: p.leases(t)}
	d.next[way](t, p)
	o.next = p.leases(t)
	return o
}

func (d ipamOperation) killAtEveryStep(t *testing.T, way string) {
	judge := d.judge(t, way)
	var p *pool
	operation{
		prepare: func(t *testing.T) *exec.Cmd {
			p = newPool(t, d.keys)
			d.before(t, p)
			return d.act(p)
		},
		after: func(t *testing.T) { judge(t, p) },
	}.killAtEveryStep(t)
}

// judge returns a check for a pool after its operation was killed or done. The check also goes on in this way, and compares
// again.
func (d ipamOperation) judge(t *testing.T, way string) func(*testing.T, *pool) {
	t.Helper()
	done, undone := d.undisturbed(t, way, true), d.undisturbed(t, way, false)
	if slices.Contains(d.repeats, way) {
		if diff := cmp.Diff(done.next, undone.next); diff != "" {
			t.Fatalf("it matters whether it was done before:\n%s", diff)
		}
	}
	return func(t *testing.T, p *pool) {
		p.sound(t)
		want := done
		if now := p.leases(t); !slices.Equal(now, done.then) {
			want = undone
			if diff := cmp.Diff(undone.then, now); diff != "" {
				t.Errorf("neither done nor undone:\n%s", diff)
			}
		}
		d.next[way](t, p)
		p.sound(t)
		if diff := cmp.Diff(want.next, p.leases(t)); diff != "" {
			t.Errorf("not as if it had not been killed:\n%s", diff)
		}
		p.allCanBeGiven(t, poolSize)
		p.nothingElse(t)
	}
}

// nothingElse expects that there is nothing beside the store.
func (p *pool) nothingElse(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(p.dir)
	must(t, err)
	for _, f := range files {
		if f.Name() != filepath.Base(p.path()) {
			t.Errorf("%s is left", f.Name())
		}
	}
}

// STATUS counts an address as free as soon as a boot has ended its lease, even before the first change of the new boot.
// Otherwise a runtime that asks STATUS first would wait for ever.
func TestIPAMStatusAfterABoot(t *testing.T) {
	t.Parallel()
	p := newPool(t, plain+`"statusExhausted": true, `+ranges(poolSize))
	added(t, p, "a", "b", "c", "d", "e")
	status := func(keys string) error {
		c := p.claim("a", "a")
		c.keys = keys
		return ipam.Status(t.Context(), c.skelArgs(""))
	}
	const full = "no address is free: 5 held, 0 reserved, 0 in quarantine"
	if err := status(""); err == nil || !strings.Contains(err.Error(), full) {
		t.Errorf("all addresses are held, and STATUS says %v", err)
	}
	must(t, status(plain+ranges(poolSize)))
	p.inEarlierBoot(t)
	must(t, status(""))
}

// If the configuration becomes "sticky" after the ADD, that counts from the DEL on. This holds even if an ADD would
// refuse that configuration.
func TestIPAMStickyCountsFromTheDelOn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ keys, want string }{
		"as before":      {plain + ranges(poolSize), "quarantined, sticky false 0s"},
		"sticky now":     {sticky + plain + ranges(poolSize), "reserved, sticky true 0s"},
		"retained":       {sticky + `"retain": "24h", ` + ranges(poolSize), "reserved, sticky true 24h0m0s"},
		"wrong ranges":   {sticky + `"ranges": [[{"subnet": 7}]]`, "reserved, sticky true 0s"},
		"a wrong retain": {sticky + `"retain": 7, ` + ranges(poolSize), "quarantined, sticky false 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, plain+ranges(poolSize))
			added(t, p, "a")
			c := p.claim("a", "a")
			c.keys = test.keys
			must(t, c.del())
			for _, l := range p.list(t) {
				got := fmt.Sprintf("%s, sticky %t %s", l.State, l.Last.Policy.Sticky, l.Last.Policy.Retain)
				if got != test.want {
					t.Errorf("%s, want %s", got, test.want)
				}
			}
			p.sound(t)
		})
	}
}
