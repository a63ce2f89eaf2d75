package lease

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The usage of a pool is that of what this node has of it. Its ranges are those of the pool: they stay the same.
func TestUsageOfAPool(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.grant(t, lan, ".+++", "?.-.")
	n.giveFrom(t, "c1/eth0", "", "10.3.0.2")
	n.giveFrom(t, "c2/eth0", "", "10.3.0.9")
	u, err := n.store(t).Usage(t.Context())
	must(t, err)
	if len(u.Sets) != 1 {
		t.Fatalf("%+v", u)
	}
	s := u.Sets[0]
	got := fmt.Sprint(s.Pool, " ", s.Ranges, " size ", s.Size, " held ", s.Held, " free ", s.Free, " outside ", u.Outside)
	if want := "lan 10.3.0.0-10.3.0.15 size 3 held 1 free 2 outside 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// An operator can reserve what the node has.
func TestReserveAnAddressOfAPool(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.grant(t, lan, ".++?", "-...")
	n.addFrom(t, "c1/eth0", "", "10.3.0.2")
	n.reserve(t, "10.3.0.3", "web-0", 0)
	for a, want := range map[string]string{
		"10.3.0.1": "10.3.0.1 is never given in network pods: it is the gateway",
		"10.3.0.4": "10.3.0.4 is never given in network pods: it is of pool lan, and not granted to this node: run the command on the node that has it, which kubectl relink show 10.3.0.4 names",
		"10.3.0.9": "10.3.0.9 is never given in network pods: it is of pool lan, and not granted to this node: run the command on the node that has it, which kubectl relink show 10.3.0.9 names",
		"10.4.0.9": "10.4.0.9 is never given in network pods: its last ADDs gave addresses of 10.3.0.0-10.3.0.15; a new range is known after its first ADD",
	} {
		_, err := n.store(t).Reserve(t.Context(), addr(a), pod("web-0"), 0)
		n.refused(t, a, err, ErrNotGiven, want)
	}
}

// Verify reads what the store has of its pools.
func TestVerifyReadsPools(t *testing.T) {
	for name, test := range map[string]struct {
		bucket, key, value string
		want               string
	}{
		"a grant that was cut short":  {bucketGrants, string(grantKey("lan", 0)), "x", "store DIR/pods.db: grant lan-0: not usable: it was cut short"},
		"a grant of an unknown pool":  {bucketGrants, string(grantKey("other", 0)), string(encodeGrant(granted(lan, 0, "++++"))), "store DIR/pods.db: not usable: grant other-0 is of a pool that the store does not know"},
		"a layout that is no layout":  {bucketPools, "lan", "x", "store DIR/pods.db: layout of pool lan: not usable"},
		"a layout with another's key": {bucketPools, "other", `{"name":"lan"}`, "store DIR/pods.db: not usable: the layout of pool lan is kept as that of other"},
		"the names of pools":          {bucketMeta, keyPools, "7", `store DIR/pods.db: names of pools: not usable: number at "", where [ belongs`},
	} {
		n := newNode(t, "10.3.0.20", minute)
		n.grant(t, lan, "..++")
		n.expectVerified(t)
		edit(t, n.path(), bucketPut(test.bucket, test.key, test.value))
		err := n.store(t).Verify(t.Context())
		if !errors.Is(err, ErrDamaged) || !strings.Contains(strings.ReplaceAll(err.Error(), n.dir, "DIR"), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

// Runs of addresses of many blocks are joined: an ADD looks at each of them.
func TestAdjacentBlocksAreOneRange(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.grant(t, lan, "++++", "+++-", "++?+", "++++")
	must(t, n.store(t).view(t.Context(), func(l *leaseTx) error {
		p, err := l.poolSet("lan")
		must(t, err)
		if got := p.ready.String() + " ? " + p.needsProbe.String(); got != "10.3.0.0-10.3.0.6,10.3.0.8-10.3.0.9,10.3.0.11-10.3.0.15 ? 10.3.0.10" {
			t.Error(got)
		}
		return nil
	}))
}
