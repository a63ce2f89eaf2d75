package crash

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// meanwhile is what can happen between the kill and the runtime's next DEL, with the checks that belong to it.
var meanwhile = map[string]func(*testing.T, *pod){
	"nothing": func(*testing.T, *pod) {},
	"restore": func(t *testing.T, p *pod) { p.restored(t) },
	"capture": func(t *testing.T, p *pod) {
		_ = p.command("capture").Run() // It may refuse a half-built interface.
		p.restored(t)
	},
}

// eachWay runs the test twice: with this kernel's way to make interfaces, and with the way of older kernels.
func eachWay(t *testing.T, test func(*testing.T, *node)) {
	for way, env := range map[string][]string{"here": nil, "older": {olderEnv + "=1"}} {
		t.Run(way, func(t *testing.T) {
			n := newNode(t)
			n.env = env
			test(t, n)
		})
	}
}

// eachPlugin runs the test with each way to attach a pod. newPod makes a new sandbox for each kill, because a sandbox
// goes through some steps only once.
func eachPlugin(t *testing.T, n *node, test func(t *testing.T, newPod func(*testing.T) *pod)) {
	for name, chained := range map[string]bool{"relink-macvlan": false, "relink-checkpoint": true} {
		t.Run(name, func(t *testing.T) {
			test(t, func(t *testing.T) *pod { return n.newPod(t, "c1", chained) })
		})
	}
}

// alone is like eachPlugin, with relink-macvlan only.
func alone(t *testing.T, n *node, test func(t *testing.T, newPod func(*testing.T) *pod)) {
	t.Run("relink-macvlan", func(t *testing.T) {
		test(t, func(t *testing.T) *pod { return n.newPod(t, "c1", false) })
	})
}

// After a killed ADD, the runtime's DEL leaves nothing behind, whatever happened in between. The next ADD works.
func TestAddKilledAtEveryStep(t *testing.T) {
	eachWay(t, addKilledAtEveryStep)
}

// addKilledAtEveryStep goes through each way to attach a pod. relink-checkpoint makes no interface, so make test tries it with one
// kernel's way only.
func addKilledAtEveryStep(t *testing.T, n *node) {
	plugins := eachPlugin
	if n.env != nil && os.Getenv("RELINK_LONG") == "" {
		plugins = alone
	}
	plugins(t, n, func(t *testing.T, newPod func(*testing.T) *pod) {
		withEach(t, slices.Collect(maps.Keys(meanwhile)), func(t *testing.T, what []string) { addOfPod(newPod, what).killAtEveryStep(t) })
	})
}

// withEach has make test-long run the test with each of what can happen meanwhile. make test runs it once with all: then one of
// them happens after each kill, by chance.
func withEach(t *testing.T, what []string, test func(*testing.T, []string)) {
	if os.Getenv("RELINK_LONG") == "" {
		test(t, what)
		return
	}
	for _, one := range what {
		t.Run(one, func(t *testing.T) { test(t, []string{one}) })
	}
}

// happens does one of what can happen meanwhile.
func happens(t *testing.T, what []string, p *pod) {
	t.Helper()
	one := what[rand.IntN(len(what))]
	t.Logf("then %s", one)
	meanwhile[one](t, p)
}

// addOfPod is the last step of an ADD. One of what happens between it and the next DEL.
func addOfPod(newPod func(*testing.T) *pod, what []string) operation {
	var p *pod
	return operation{
		prepare: func(t *testing.T) *exec.Cmd {
			p = newPod(t)
			cmd, err := p.addLast()
			must(t, err)
			return cmd
		},
		after: func(t *testing.T) {
			happens(t, what, p)
			must(t, p.del())
			p.gone(t)
			must(t, p.add())
			p.says(t, 0, "check")
			must(t, p.del())
			p.gone(t)
		},
	}
}

// The next DEL finishes a killed one. Nothing comes back whose checkpoint was forgotten.
func TestDelKilledAtEveryStep(t *testing.T) {
	eachPlugin(t, newNode(t), func(t *testing.T, newPod func(*testing.T) *pod) {
		withEach(t, slices.Collect(maps.Keys(meanwhile)), func(t *testing.T, what []string) { delOfPod(newPod, what).killAtEveryStep(t) })
	})
}

// delOfPod is the first step of a DEL. One of what happens between it and the next DEL.
func delOfPod(newPod func(*testing.T) *pod, what []string) operation {
	var p *pod
	return operation{
		prepare: func(t *testing.T) *exec.Cmd {
			p = newPod(t)
			must(t, p.add())
			return p.delFirst()
		},
		after: func(t *testing.T) {
			happens(t, what, p)
			must(t, p.del())
			p.gone(t)
		},
	}
}

// The parent is lost after the kill. So an interface that exists afterwards was brought back.
func TestRestoreBringsNothingBackThatWasForgotten(t *testing.T) {
	eachPlugin(t, newNode(t), func(t *testing.T, newPod func(*testing.T) *pod) {
		var p *pod
		operation{
			prepare: func(t *testing.T) *exec.Cmd {
				p = newPod(t)
				must(t, p.add())
				return p.delFirst()
			},
			after: func(t *testing.T) {
				_, err := p.store.Load(p.id, p.ifName)
				if err == nil && !p.attached(t) {
					t.Error("its interface is deleted, and its checkpoint is not forgotten")
				}
				loseParent(t)
				p.restored(t)
				if back := len(links(t, p.netns)) > 1; back != (err == nil) {
					t.Errorf("brought back: %v, with the checkpoint: %v", back, err)
				}
				must(t, p.del())
				p.gone(t)
				// A runtime repeats DELs, even if nothing is left.
				must(t, p.del())
				p.gone(t)
				fresh.IP(t, "", "link set lan0 up") // restore had nothing to do, so nobody has set lan0 up.
			},
		}.killAtEveryStep(t)
	})
}

// The runtime is killed too. It has called the plugins before this point, but not the others.
func TestListCutBetweenItsPlugins(t *testing.T) {
	for what, comes := range meanwhile {
		t.Run(what, func(t *testing.T) {
			p := newNode(t).newPod(t, "c1", true)
			_, err := output(p.plugin("macvlan", "ADD", ""))
			must(t, err)
			comes(t, p)
			must(t, p.del())
			p.gone(t)
			must(t, p.add())
			_, err = output(p.delFirst())
			must(t, err)
			comes(t, p)
			must(t, p.del())
			p.gone(t)
		})
	}
}

// The next GC finishes a killed one. Neither of them touches valid attachments.
func TestGCKilledAtEveryStep(t *testing.T) {
	for name, chained := range map[string]bool{"relink-macvlan": false, "relink-checkpoint": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			valid := n.newPod(t, "valid", chained)
			must(t, valid.add())
			var others []*pod
			gc := func() *exec.Cmd {
				return valid.plugin(name, "GC", `, "cni.dev/valid-attachments": [{"containerID": "valid", "ifname": "eth0"}]`)
			}
			operation{
				prepare: func(t *testing.T) *exec.Cmd {
					others = nil
					for i := range 2 {
						p := n.newPod(t, fmt.Sprintf("c%d", i), chained)
						must(t, p.add())
						p.loseSandbox(t)
						others = append(others, p)
					}
					return gc()
				},
				after: func(t *testing.T) {
					_, err := output(gc())
					must(t, err)
					n.restored(t)
					records, _, err := n.store.List()
					if err != nil || len(records) != 1 || records[0].Attachment.ContainerID != "valid" {
						t.Errorf("%v %v", records, err)
					}
					for _, p := range others {
						must(t, p.del())
						p.gone(t)
					}
					n.says(t, 0, "check")
				},
			}.killAtEveryStep(t)
		})
	}
}
