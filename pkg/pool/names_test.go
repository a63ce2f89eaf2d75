package pool

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
)

// The names that Kubernetes accepts: of an object, and of a label's key.
var (
	objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	labelName  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
)

func TestNamesAreNamesWhateverTheOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := attachment.Owner{
			Group: rapid.String().Draw(t, "group"), Kind: rapid.String().Draw(t, "kind"), Namespace: rapid.String().Draw(t, "namespace"),
			Name: rapid.String().Draw(t, "name"), UID: rapid.String().Draw(t, "UID"), Ordinal: attachment.OrdinalOf(rapid.IntRange(-1, 1<<20).Draw(t, "ordinal")),
		}
		pool := rapid.StringMatching(`[a-z0-9]([-a-z0-9.]{0,198}[a-z0-9])?`).Filter(objectName.MatchString).Draw(t, "pool")
		ifName := rapid.String().Draw(t, "interface")
		for _, name := range []string{ClaimName(pool, ifName, o), BlockName(pool, rapid.Int64Range(0, MaxBlocks-1).Draw(t, "index"))} {
			if len(pool) <= MaxName && (len(name) > 253 || !objectName.MatchString(name) || !strings.HasPrefix(name, pool+"-")) {
				t.Fatalf("%q is no name of an object of pool %q", name, pool)
			}
		}
		for name, is := range map[string]bool{
			ClaimName(pool, ifName, o): true, BlockName(pool, 1): false, pool + "-": false, "": false, "x" + ClaimName(pool, ifName, o): false, ClaimName(pool, ifName, o) + "/00": false,
		} {
			if IsClaimName(pool, name) != is {
				t.Fatalf("%q is a claim of pool %q: %t, want %t", name, pool, !is, is)
			}
		}
		key := NodeLabel(rapid.String().Draw(t, "node"))
		prefix, name, _ := strings.Cut(key, "/")
		if len(prefix) > 253 || !objectName.MatchString(prefix) || len(name) > 63 || !labelName.MatchString(name) {
			t.Fatalf("%q is no key of a label", key)
		}
		b := Block{Spec: BlockSpec{Pool: pool}}
		if b.setLabels(); len(b.Metadata.Labels[PoolLabel]) > 63 || b.Metadata.Labels[PoolLabel] != "" && !labelName.MatchString(b.Metadata.Labels[PoolLabel]) {
			t.Fatalf("%q is no value of a label", b.Metadata.Labels[PoolLabel])
		}
	})
}

func TestClaimsOfOthersHaveOtherNames(t *testing.T) {
	o := attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: "ns", Name: "web", UID: "1"}
	names := map[string]string{}
	add := func(what, pool, ifName string, o attachment.Owner) {
		name := ClaimName(pool, ifName, o)
		if other, is := names[name]; is {
			t.Errorf("%s and %s have the claim %s", what, other, name)
		}
		if names[name] = what; name != ClaimName(pool, ifName, o) {
			t.Errorf("%s has two names", what)
		}
	}
	add("the owner", "p", "net1", o)
	add("another interface", "p", "net2", o)
	add("another pool", "q", "net1", o)
	for what, change := range map[string]func(*attachment.Owner){
		"another group":     func(o *attachment.Owner) { o.Group = "" },
		"another kind":      func(o *attachment.Owner) { o.Kind = "Deployment" },
		"another namespace": func(o *attachment.Owner) { o.Namespace = "n" },
		"another name":      func(o *attachment.Owner) { o.Name = "web-0" },
		"another UID":       func(o *attachment.Owner) { o.UID = "2" },
		"the first pod":     func(o *attachment.Owner) { o.Ordinal = attachment.OrdinalOf(0) },
		"the second pod":    func(o *attachment.Owner) { o.Ordinal = attachment.OrdinalOf(1) },
		"parts cut anew":    func(o *attachment.Owner) { o.Group, o.Kind = "app", "sStatefulSet" },
	} {
		other := o
		change(&other)
		add(what, "p", "net1", other)
	}
}

func TestTarget(t *testing.T) {
	for _, test := range []struct{ size, used, want int }{
		{16, 0, 16}, {16, 1, 16}, {16, 8, 16}, {16, 9, 32}, {16, 24, 32}, {16, 25, 48}, {1, 0, 1}, {1, 1, 2}, {2, 1, 2}, {2, 2, 4}, {3, 1, 3}, {3, 2, 6}, {64, 32, 64}, {64, 33, 128},
	} {
		if got := Target(test.size, test.used); got != test.want {
			t.Errorf("Target(%d, %d) = %d, want %d", test.size, test.used, got, test.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		size, used := rapid.IntRange(1, MaxBlockSize).Draw(t, "block size"), rapid.IntRange(0, 1<<20).Draw(t, "used")
		n := Target(size, used)
		if n%size != 0 || 2*(n-used) < size {
			t.Fatalf("Target(%d, %d) = %d: it must be whole blocks, and half a block more than is used", size, used, n)
		}
		if 2*(n-size-used) >= size {
			t.Fatalf("Target(%d, %d) = %d: a block less is enough", size, used, n)
		}
	})
}

func TestParseBlockName(t *testing.T) {
	for name, want := range map[string]struct {
		pool  string
		index int64
		ok    bool
	}{
		"lan-0": {"lan", 0, true}, "lan-ipv6-31": {"lan-ipv6", 31, true},
		"lan-ipv6": {"lan", 0, false}, "lan-": {"lan", 0, false}, "-1": {"", 1, false}, "7": {"", 7, false}, "": {"", 0, false},
	} {
		if pool, index, ok := ParseBlockName(name); pool != want.pool || index != want.index || ok != want.ok {
			t.Errorf("%q is block %d of pool %q, %t; want %+v", name, index, pool, ok, want)
		}
	}
}
