package lease

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/attachment"
)

var update = flag.Bool("update", false, "write testdata/schema1.db and its JSON anew: only before a version is released")

// golden is the content of a store in JSON. Every store that was ever written must stay readable.
type golden struct {
	Leases []jsontext.Value `json:"leases"`
	Known  RequestedRanges  `json:"known,omitzero"`
	Events []Event          `json:"events,omitzero"`
}

// goldenNode returns a node with the stored store, at the time when makeHistory had made it.
func goldenNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t, "10.3.0.30", minute)
	n.later(3*time.Minute + 30*time.Second)
	copyFile(t, goldenFile("schema1.db"), n.path())
	return n
}

func goldenFile(name string) string { return filepath.Join("testdata", name) }

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, b, 0o600))
}

func (n *node) readGolden(t *testing.T) (want golden, listed []Lease) {
	t.Helper()
	b, err := os.ReadFile(goldenFile("schema1.json"))
	must(t, err)
	must(t, jsonv2.Unmarshal(b, &want, jsonv2.RejectUnknownMembers(true)))
	for _, v := range want.Leases {
		l, err := decodeLease(v)
		must(t, err)
		l.Network = n.network
		listed = append(listed, l)
	}
	return want, listed
}

// all returns everything that the store tells.
func (n *node) all(t *testing.T) (listed []Lease, known RequestedRanges, events []Event) {
	t.Helper()
	listed, err := n.store(t).List(t.Context())
	must(t, err)
	must(t, n.store(t).view(t.Context(), func(l *leaseTx) (err error) {
		if known, err = l.lastRequested(); err != nil {
			return err
		}
		return l.eachEvent(func(e Event) { events = append(events, e) })
	}))
	return listed, known, events
}

func (n *node) compare(t *testing.T, when string) {
	t.Helper()
	want, wantListed := n.readGolden(t)
	listed, known, events := n.all(t)
	same := cmp.Options{sameLease, cmpopts.EquateComparable(netip.Prefix{})}
	if diff := cmp.Diff(wantListed, listed, same); diff != "" {
		t.Errorf("%s: leases (-want +got):\n%s", when, diff)
	}
	if diff := cmp.Diff(want.Known, known, same); diff != "" {
		t.Errorf("%s: known ranges (-want +got):\n%s", when, diff)
	}
	if diff := cmp.Diff(want.Events, events, same); diff != "" {
		t.Errorf("%s: events (-want +got):\n%s", when, diff)
	}
	n.expectVerified(t)
}

// A store is read as it was written. This holds for a look, and after a change. The change leaves no lease behind.
func TestStoredLeasesAreReadAsTheyWere(t *testing.T) {
	if *update {
		writeGolden(t)
	}
	n := goldenNode(t)
	before := sumOf(t, n.path())
	n.compare(t, "by a look")
	if sumOf(t, n.path()) != before {
		t.Error("a look changed the file")
	}
	// The change makes no event, because nothing happened to an address.
	must(t, n.store(t).change(t.Context(), func(l *leaseTx) error { return l.setLastGiven(7, addr("10.3.0.2")) }))
	n.compare(t, "after a change")
	if sumOf(t, n.path()) == before {
		t.Error("no change")
	}
	must(t, n.store(t).view(t.Context(), func(l *leaseTx) error {
		if got := string(l.meta.Get([]byte(keySchema))); got != "1" {
			t.Errorf("after a change: schema %s", got)
		}
		return nil
	}))
}

// The content of a store's buckets does not change within this schema, because newer and older relinks read it.
func TestLeasesAreStoredAsTheyWere(t *testing.T) {
	n := newNode(t, "10.3.0.30", minute)
	makeHistory(t, n)
	want, got := contents(t, goldenFile("schema1.db")), contents(t, n.path())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-stored +written now):\n%s", diff)
	}
}

func sumOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

// contents returns the keys and values of a store by bucket. Bytes that are not text are quoted.
func contents(t *testing.T, path string) map[string]map[string]string {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	must(t, err)
	all := map[string]map[string]string{}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			in := map[string]string{}
			all[string(name)] = in
			return b.ForEach(func(k, v []byte) error {
				in[fmt.Sprintf("%q", k)] = readable(v)
				return nil
			})
		})
	})
	must(t, errors.Join(err, db.Close()))
	return all
}

// used returns the length of the part of the file that has pages of bbolt.
func used(t *testing.T, path string) (size int64) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	must(t, err)
	err = db.View(func(tx *bolt.Tx) error {
		size = tx.Size()
		return nil
	})
	must(t, errors.Join(err, db.Close()))
	return size
}

func readable(v []byte) string {
	if bytes.HasPrefix(v, []byte("{")) {
		return string(v)
	}
	return fmt.Sprintf("%q", v)
}

// writeGolden writes the store that eventful makes.
func writeGolden(t *testing.T) {
	t.Helper()
	n := newNode(t, "10.3.0.30", minute)
	makeHistory(t, n)
	copyFile(t, n.path(), goldenFile("schema1.db"))
	// Cut off the spare room in the file.
	must(t, os.Truncate(goldenFile("schema1.db"), used(t, n.path())))
	var g golden
	listed, known, events := n.all(t)
	for _, l := range listed {
		g.Leases = append(g.Leases, encodeLease(l))
	}
	g.Known, g.Events = known, events
	b, err := jsonv2.Marshal(g, jsontext.WithIndent("  "))
	must(t, err)
	must(t, os.WriteFile(goldenFile("schema1.json"), append(b, '\n'), 0o644))
}

// makeHistory makes a store with a lease of each kind.
func makeHistory(t *testing.T, n *node) {
	t.Helper()
	six := RangeSet{{Span: span("fd00:3::2", "fd00:3::ff"), Subnet: netip.MustParsePrefix("fd00:3::/64"), Gateway: addr("fd00:3::1"), Excluded: []Span{span("fd00:3::3", "fd00:3::3")}}}
	v4, v6 := n.sets, []RangeSet{n.sets[0], six}
	n.sets = v6
	n.add(t, "c1/eth0", "web-0", "10.3.0.2 fd00:3::2")
	n.sets = v4
	n.add(t, "c2/eth0", "", "10.3.0.3")
	n.add(t, "c3/eth0", "gone-0", "10.3.0.4")
	n.later(time.Minute)
	n.policy = stickyFor(72 * time.Hour)
	r := n.request("c4/eth0", "db-0")
	r.Namespace = attachment.Namespace{Path: "/run/netns/c4", Device: 4, Inode: 4026532345, Cookie: 8193}
	_, err := n.store(t).Allocate(t.Context(), r)
	must(t, err)
	n.add(t, "c5/net1", "db-1", "10.3.0.6")
	n.del(t, "c5/net1")
	n.policy = sticky
	n.add(t, "c6/eth0", "kv-0", "10.3.0.7")
	n.del(t, "c6/eth0")
	n.later(time.Minute)
	n.reserve(t, "10.3.0.5", "db-0", 48*time.Hour)
	n.reserve(t, "10.3.0.20", "hand-0", 0)
	n.reserve(t, "10.3.0.21", "hand-1", 24*time.Hour)
	n.add(t, "c9/eth0", "db-0", "10.3.0.5")
	n.policy = minute
	n.later(time.Minute)
	n.add(t, "c7/eth0", "", "10.3.0.8")
	_, err = n.store(t).Conflict(t.Context(), n.key("c7/eth0"), addr("10.3.0.8"), "02:00:00:00:00:01")
	must(t, err)
	r = n.request("c10/eth0", "web-1")
	r.Owner, r.AlternateOwner = set("web", 1), pod("web-1")
	r.APIOwner, r.Policy.Shared, r.Policy.ByOwner = r.Owner, true, true
	_, err = n.store(t).Allocate(t.Context(), r)
	must(t, err)
	n.takeIn(t, "host-local",
		Lease{Address: addr("10.3.0.28"), Owner: pod("old-0"), State: Held, Holders: []Holder{{
			ContainerID: "c8", IfName: "eth0", Pod: attachment.Pod{Namespace: "default", Name: "old-0", UID: "0f5b1c2d"}, Since: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Origin: Imported,
			Policy: minute, Namespace: attachment.Namespace{BootID: n.boot},
		}}},
		Lease{Address: addr("10.3.0.29"), State: Reserved, Reason: "a pod may have it", ReleasedAt: n.day},
	)
	n.later(30 * time.Second)
	n.del(t, "c3/eth0")
	edit(t, n.path(), func(tx *bolt.Tx) error {
		leases := tx.Bucket([]byte(bucketLeases))
		key := addressKey(addr("10.3.0.5"))
		return leases.Put(key, withFuture(leases.Get(key), 7))
	})
}

// set returns the owner of a StatefulSet's pod.
func set(name string, ordinal int) attachment.Owner {
	return attachment.Owner{
		Group: "apps", Kind: "StatefulSet", Namespace: "default", Name: name, UID: "uid-of-" + name, Ordinal: attachment.OrdinalOf(ordinal),
	}
}

// takeIn gives these leases to their addresses.
func (n *node) takeIn(t *testing.T, why string, all ...Lease) {
	t.Helper()
	must(t, n.store(t).Import(t.Context(), false, func(ImportView) Import { return Import{Leases: all, Reason: why} }))
}
