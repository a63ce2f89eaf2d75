package gc

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
)

func someOf[T any](t *rapid.T, all []T, label string) T {
	if len(all) == 0 {
		t.SkipNow()
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(t, label)]
}

// sandboxesWhere returns the sandboxes for which ok says yes.
func (m *model) sandboxesWhere(ok func(*podSandbox) bool) (all []*podSandbox) {
	for _, b := range m.sandboxes {
		if ok(b) {
			all = append(all, b)
		}
	}
	return all
}

func isAdding(b *podSandbox) bool { return b.alive && b.runtime == "" }

// actions are what happens on a node, in any order.
func (m *model) actions() map[string]func(*rapid.T) {
	web := func(t *rapid.T) attachment.Owner {
		return attachment.Owner{
			Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: rapid.SampledFrom([]string{"web", "web.1"}).Draw(t, "name"),
			UID: rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "uid"), Ordinal: attachment.OrdinalOf(rapid.IntRange(0, 2).Draw(t, "ordinal")),
		}
	}
	return map[string]func(*rapid.T){
		"an ADD begins": func(t *rapid.T) { o := web(t); m.owners[o] = true; m.beginADD(o) },
		"an ADD ends":   func(t *rapid.T) { m.finishADD(someOf(t, m.sandboxesWhere(isAdding), "sandbox")) },
		"a namespace goes": func(t *rapid.T) {
			m.removeNamespace(someOf(t, m.sandboxesWhere(func(b *podSandbox) bool { return b.alive }), "sandbox"))
		},
		"a sandbox stops": func(t *rapid.T) {
			someOf(t, m.sandboxesWhere(func(b *podSandbox) bool { return b.runtime == "ready" }), "sandbox").runtime = "stopped"
		},
		"a DEL comes": func(t *rapid.T) {
			m.del(someOf(t, m.sandboxesWhere(func(b *podSandbox) bool { return !b.alive || b.runtime == "stopped" }), "sandbox"))
		},
		"the runtime forgets": func(t *rapid.T) {
			someOf(t, m.sandboxesWhere(func(b *podSandbox) bool { return !b.alive }), "sandbox").runtime = ""
		},
		"an owner goes":              func(t *rapid.T) { m.owners[web(t)] = false },
		"an owner comes back":        func(t *rapid.T) { m.owners[web(t)] = true },
		"the runtime goes or comes":  func(*rapid.T) { m.runtimeDown = !m.runtimeDown },
		"the API goes or comes":      func(*rapid.T) { m.apiDown = !m.apiDown },
		"the API fails for an owner": func(t *rapid.T) { o := web(t); m.deaf[o] = !m.deaf[o] },
		"a moment":                   func(*rapid.T) { m.uptime += time.Minute },
		"a while":                    func(*rapid.T) { m.uptime += DefaultGrace },
		"gc": func(t *rapid.T) {
			if _, wrong := m.gc(); wrong != nil {
				t.Fatal(wrong)
			}
		},
	}
}

// Whatever happens in whatever order: nothing is freed that lives, and no audit calls a healthy node ill. When everybody
// answers, two passes a grace apart free everything that is dead.
func TestNothingThatLivesIsFreedAndAllThatIsDead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{owners: map[attachment.Owner]bool{}, deaf: map[attachment.Owner]bool{}}
		t.Repeat(m.actions())
		m.runtimeDown, m.apiDown, m.deaf = false, false, map[attachment.Owner]bool{}
		// The addresses of sandboxes become reservations first.
		for range 4 {
			m.uptime += DefaultGrace
			if _, wrong := m.gc(); wrong != nil {
				t.Fatal(wrong)
			}
		}
		for _, l := range m.leases {
			for _, h := range l.holders {
				if m.checkDead(h.ContainerID) == nil {
					t.Errorf("%s is dead, and has %s", h.ContainerID, l.address)
				}
			}
			if len(l.holders) == 0 && !m.owners[l.of] {
				t.Errorf("nobody will ask for %s", l.address)
			}
		}
		for _, r := range m.records {
			if m.checkDead(r.box.id) == nil {
				t.Errorf("%s is dead, and has a checkpoint", r.box.id)
			}
		}
	})
}
