package lease

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/pool"
)

// addUnknownFields adds something of a newer relink to the stored grant.
func (n *node) addUnknownFields(t *testing.T, index int64) {
	t.Helper()
	edit(t, n.path(), func(tx *bolt.Tx) error {
		bucket, key := tx.Bucket([]byte(bucketGrants)), grantKey("lan", index)
		return bucket.Put(key, append(append([]byte{}, bucket.Get(key)...), textKey("future")...))
	})
}

// rest returns what a newer relink has added to the stored grant.
func (n *node) rest(t *testing.T, index int64) (rest string) {
	t.Helper()
	must(t, n.store(t).view(t.Context(), func(l *leaseTx) error {
		_, more, err := l.grant("lan", index)
		rest = string(more)
		return err
	}))
	return rest
}

// What a newer relink has added to a grant stays, whatever this one makes of the grant.
func TestChangesOfAGrantKeepWhatANewerRelinkHasAdded(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *Store) error{
		"PutGrants": func(t *testing.T, s *Store) error {
			return s.PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, "+++."), granted(lan, 1, "++++")})
		},
		"Reconcile": func(t *testing.T, s *Store) error { _, err := s.mark(t, 0, []int{0}); return err },
	} {
		n := newNode(t, "10.3.0.20", minute)
		n.grant(t, lan, "++..")
		n.addUnknownFields(t, 0)
		before := n.chars(t, "lan")
		must(t, change(t, n.store(t)))
		if got := n.rest(t, 0); got != string(textKey("future")) || n.chars(t, "lan") == before {
			t.Errorf("%s: %q is left, and the grants are %s", name, got, n.chars(t, "lan"))
		}
		n.expectVerified(t)
	}
}

// The choice goes round all that the node has, from the address that was given last. A block that comes or goes does not begin it anew.
func TestTheTurnGoesRoundTheBlocks(t *testing.T) {
	n := newNode(t, "10.3.0.20", Policy{})
	n.grant(t, lan, "+.+.", "....", "..++")
	given := func(sandbox string) string {
		t.Helper()
		all, err := n.store(t).Allocate(t.Context(), n.fromPools(sandbox, "", "lan"))
		must(t, err)
		return all[0].Address.String()
	}
	for i, step := range []struct {
		what string
		del  string
		add  string
		want string
	}{
		{"the first", "", "c1/eth0", "10.3.0.0"},
		{"the next", "", "c2/eth0", "10.3.0.2"},
		{"not what was released just now", "c1/eth0", "c3/eth0", "10.3.0.10"},
		{"on in the other block", "c2/eth0", "c4/eth0", "10.3.0.11"},
		{"round", "c3/eth0", "c5/eth0", "10.3.0.0"},
		{"on", "c5/eth0", "c6/eth0", "10.3.0.2"},
		{"over what was released", "c6/eth0", "c7/eth0", "10.3.0.10"},
	} {
		if step.del != "" {
			n.del(t, step.del)
		}
		if got := given(step.add); got != step.want {
			t.Errorf("%d, %s: %s, want %s", i, step.what, got, step.want)
		}
	}
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 1, "+..."), granted(lan, 3, "+...")}))
	if got := given("c8/eth0"); got != "10.3.0.12" {
		t.Errorf("with new blocks: %s, want the one that follows on the last", got)
	}
}

// An address that a pod has given up rests. An ADD takes it before its time only if nothing else is left, and the one whose time is
// over first.
func TestQuarantineOfPools(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.grant(t, lan, "+.+.", "+...")
	n.addFrom(t, "c1/eth0", "", "10.3.0.0")
	n.addFrom(t, "c2/eth0", "", "10.3.0.2")
	n.del(t, "c1/eth0")
	n.later(10 * time.Second)
	n.del(t, "c2/eth0")
	n.addFrom(t, "c3/eth0", "", "10.3.0.4")
	n.addFrom(t, "c4/eth0", "", "10.3.0.0")
	n.addFrom(t, "c5/eth0", "", "10.3.0.2")
	n.del(t, "c3/eth0")
	n.later(61 * time.Second)
	n.del(t, "c4/eth0")
	n.addFrom(t, "c6/eth0", "", "10.3.0.4")
	// What was given back to the pool meanwhile is nobody's any more here, quarantine or not.
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, "..+.")}))
	_, err := n.store(t).Allocate(t.Context(), n.fromPools("c7/eth0", "", "lan"))
	n.refused(t, "one in quarantine that the node does not have", err, ErrExhausted,
		"pool lan of network pods: no address is free of the 2 that this node has: 2 held, 0 reserved, 0 in quarantine; relink ipam list says for whom")
	n.expectVerified(t)
}

// Blocks that follow on each other are one range: the choice in a node with many blocks takes no longer.
func TestNeighboursAreOneRange(t *testing.T) {
	for name, test := range map[string]struct {
		blocks         []string
		sure, doubtful string
	}{
		"two blocks":          {[]string{"++++", "++++"}, "10.3.0.0-10.3.0.7", ""},
		"a hole":              {[]string{"++.+", "++++"}, "10.3.0.0-10.3.0.1, 10.3.0.3-10.3.0.7", ""},
		"a block is missing":  {[]string{"++++", "....", "++++"}, "10.3.0.0-10.3.0.3, 10.3.0.8-10.3.0.11", ""},
		"of two kinds":        {[]string{"++??", "??++"}, "10.3.0.0-10.3.0.1, 10.3.0.6-10.3.0.7", "10.3.0.2-10.3.0.5"},
		"marks are a hole":    {[]string{"+++-", "-+++"}, "10.3.0.0-10.3.0.2, 10.3.0.5-10.3.0.7", ""},
		"one after the other": {[]string{"+?+?", "+?+?"}, "10.3.0.0, 10.3.0.2, 10.3.0.4, 10.3.0.6", "10.3.0.1, 10.3.0.3, 10.3.0.5, 10.3.0.7"},
	} {
		n := newNode(t, "10.3.0.20", minute)
		n.grant(t, lan, test.blocks...)
		must(t, n.store(t).view(t.Context(), func(l *leaseTx) error {
			p, err := l.poolSet("lan")
			if err != nil {
				return err
			}
			if got := textOf(p.ready); got != test.sure {
				t.Errorf("%s: %s, want %s", name, got, test.sure)
			}
			if got := textOf(p.needsProbe); got != test.doubtful {
				t.Errorf("%s: to be probed %s, want %s", name, got, test.doubtful)
			}
			if len(p.members) != 1 {
				t.Errorf("%s: the pool is %s", name, textOf(p.members))
			}
			return nil
		}))
	}
}

func textOf(s RangeSet) string {
	var all []string
	for _, r := range s {
		all = append(all, r.String())
	}
	return strings.Join(all, ", ")
}

// A damaged grant is told by each step that reads it, and nothing is changed or given then.
func TestDamagedGrants(t *testing.T) {
	sound := encodeGrant(granted(lan, 1, "++++"))
	for name, test := range map[string]struct {
		value string
		want  string
	}{
		"cut short":         {string(sound[:30]), "grant lan-1: not usable: it was cut short"},
		"empty":             {"", "not usable: it was cut short"},
		"another character": {string(encodeGrant(granted(lan, 1, "++x+"))), `grant lan-1: not usable: its addresses are "++x+"`},
		"too long":          {string(encodeGrant(granted(lan, 1, strings.Repeat("+", 65)))), "grant lan-1: not usable: it has 65 addresses: a block has 1 to 64"},
	} {
		for step, do := range map[string]func(*node) error{
			"PutGrants": func(n *node) error {
				return n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, "+++-"), granted(lan, 1, "+++-")})
			},
			"Reconcile": func(n *node) error { _, err := n.store(t).mark(t, 1, []int{0}); return err },
			"Allocate": func(n *node) error {
				_, err := n.store(t).Allocate(t.Context(), n.fromPools("c1/eth0", "", "lan"))
				return err
			},
			"Granted": func(n *node) error { _, err := n.store(t).Granted(t.Context()); return err },
		} {
			n := newNode(t, "10.3.0.20", minute)
			n.grant(t, lan, "++++", "++++")
			edit(t, n.path(), bucketPut(bucketGrants, string(grantKey("lan", 1)), test.value))
			before := sumOf(t, n.path())
			if err := do(n); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, %s: %v, want %s", name, step, err, test.want)
			}
			if sumOf(t, n.path()) != before {
				t.Errorf("%s, %s: the file has changed", name, step)
			}
		}
	}
}

// An address that the pool excludes by now is given to nobody, whatever it was.
func TestWhatIsExcludedByNow(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.grant(t, lan, "+.++", "++..")
	n.giveFrom(t, "c1/eth0", "web-0", "10.3.0.2")
	n.giveFrom(t, "c2/eth0", "web-1", "10.3.0.4")
	n.del(t, "c1/eth0")
	fewer := lan
	fewer.Exclude = []pool.Span{{First: addr("10.3.0.2"), Last: addr("10.3.0.4")}}
	must(t, n.store(t).PutGrants(t.Context(), fewer, nil))
	p := n.granted(t).Pools[0]
	if diff := cmp.Diff(fewer, p.Layout, sameGrant); diff != "" || p.Used != 0 || fmt.Sprint(p.Gives(p.Grants[0]), p.Gives(p.Grants[1]), p.Free(p.Grants[0], pool.GrantedChars), p.Free(p.Grants[1], pool.GrantedChars)) != "1 1 1 1" {
		t.Errorf("%d used, gives %d and %d (-want +got):\n%s", p.Used, p.Gives(p.Grants[0]), p.Gives(p.Grants[1]), diff)
	}
	n.policy = minute
	n.addFrom(t, "c3/eth0", "", "10.3.0.0")
	n.addFrom(t, "c4/eth0", "", "10.3.0.5")
	_, err := n.store(t).Allocate(t.Context(), n.fromPools("c5/eth0", "", "lan"))
	if !errors.Is(err, ErrExhausted) {
		t.Errorf("with excluded addresses only: %v", err)
	}
}

// The store knows that a pool is deleted, and an earlier relink reads the rest.
func TestADeletedPoolIsStored(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.grant(t, lan, "++++")
	if p := n.granted(t).Pools[0]; p.Layout.Unneeded || p.Target() != 4 {
		t.Errorf("before: %+v, target %d", p.Layout, p.Target())
	}
	gone := lan
	gone.Unneeded = true
	must(t, n.store(t).PutGrants(t.Context(), gone, nil))
	if p := n.granted(t).Pools[0]; !p.Layout.Unneeded || p.Target() != 0 {
		t.Errorf("afterwards: %+v, target %d", p.Layout, p.Target())
	}
	must(t, n.store(t).PutGrants(t.Context(), lan, nil))
	must(t, n.store(t).SetPools(t.Context(), []string{"lan6"}))
	all := n.granted(t).Pools
	if all[1].Target() != 0 || all[1].Layout.Unneeded || all[0].Target() != 0 {
		t.Errorf("a pool that is named no more has the target %d, an unknown one %d", all[1].Target(), all[0].Target())
	}
}

// An address that came with a machine and that a reboot has left here is forgotten as a whole.
func TestUnexpectAfterAReboot(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.grant(t, lan, "+...")
	n.giveFrom(t, "c1/eth0", "web-0", "10.3.0.9") // The node does not have it.
	n.reboot("boot-2", time.Minute)
	must(t, n.store(t).CancelIncoming(t.Context(), "lan", addr("10.3.0.9"), pod("web-1")))
	n.expect(t, "for another owner", "10.3.0.9 reserved c1/eth0 web-0")
	must(t, n.store(t).CancelIncoming(t.Context(), "lan", addr("10.3.0.9"), pod("web-0")))
	n.expect(t, "for its owner")
	n.expectVerified(t)
}
