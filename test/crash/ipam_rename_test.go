package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	testnode "github.com/relink-cni/relink/test/node"
)

// renaming is a network that gets another name.
type renaming struct{ old, now *pool }

// command prepares the rename.
func (r renaming) command() *exec.Cmd {
	return exec.Command(filepath.Join(bin, "relink"), "ipam", "--data-dir", r.old.dir, "rename", r.old.network, r.now.network)
}

// holds returns the sandboxes that hold an address of the pool.
func (p *pool) holds(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, l := range p.list(t) {
		if l.State == lease.Held {
			all = append(all, holderIDs(l)...)
		}
	}
	slices.Sort(all)
	return all
}

// goOn does what happens on a node after a rename, killed or not: pods come and go by the old name, somebody runs the
// rename again, and a GC comes by the new name.
func (r renaming) goOn(t *testing.T, want ...string) {
	t.Helper()
	must(t, r.old.claim("a", "a").del())
	if there, err := r.old.store(t).Exists(); err != nil || there {
		must(t, err)
		if _, err := r.old.claim("late", "late").add(); err == nil {
			want = append(want, "late")
		}
		if out, err := r.command().CombinedOutput(); err != nil {
			t.Fatalf("run again: %v\n%s", err, out)
		}
	}
	if _, err := os.Stat(r.old.path()); err == nil {
		t.Error("the old store is there still")
	}
	testnode.EndSandbox(t, r.now.netns) // So that nothing but its network's name keeps an address.
	_, err := output(r.now.claim("x", "x").plugin("GC", validAttachments()))
	must(t, err)
	slices.Sort(want)
	if diff := cmp.Diff(want, r.now.holds(t)); diff != "" {
		t.Errorf("who holds an address (-want +got):\n%s", diff)
	}
	r.now.sound(t)
}

// A rename that is killed and run again loses no pod's address, and brings none back.
func TestIPAMRenameKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for name, merged := range map[string]bool{"the file gets the name": false, "into another store": true} {
		t.Run(name, func(t *testing.T) {
			var r renaming
			want := []string{"c", "d"}
			operation{
				prepare: func(t *testing.T) *exec.Cmd {
					old := newPool(t, sticky+ranges(poolSize+2))
					now := *old
					now.network = "now"
					r = renaming{old, &now}
					if merged {
						other := now.claim("n", "n")
						other.args = ";IP=10.7.0.16"
						_, err := other.add()
						must(t, err)
						must(t, other.del())
					}
					added(t, old, "a", "b", "c", "d")
					deleted(t, old, "b")
					return r.command()
				},
				after: func(t *testing.T) { r.goOn(t, want...) },
			}.killAtEveryStep(t)
		})
	}
}
