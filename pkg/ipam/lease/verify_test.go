package lease

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// All indices are compared with the leases.
func TestVerifyFindsWhatIsNotAsTheLeasesSay(t *testing.T) {
	three, four := addressKey(addr("10.3.0.3")), addressKey(addr("10.3.0.4"))
	put := func(bucket string, key, value []byte) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucket)).Put(key, value) }
	}
	remove := func(bucket string, key []byte) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucket)).Delete(key) }
	}
	held := func(sandbox string) []byte { return append(textKey(sandbox, "eth0"), three...) }
	changed := func(change func(map[string]any)) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error {
			leases := tx.Bucket([]byte(bucketLeases))
			var l map[string]any
			if err := json.Unmarshal(leases.Get(three), &l); err != nil {
				return err
			}
			change(l)
			b, err := json.Marshal(l)
			if err != nil {
				return err
			}
			return leases.Put(three, b)
		}
	}
	for name, test := range map[string]struct {
		change func(*bolt.Tx) error
		why    string
	}{
		"nothing":                     {func(*bolt.Tx) error { return nil }, ""},
		"the index lacks a holder":    {remove(bucketAttachments, held("c3")), "bucket attachments lacks 1 of 4 entries"},
		"it names one too many":       {put(bucketAttachments, held("c9"), nil), "bucket attachments has "},
		"it lacks an owner":           {remove(bucketOwners, append(ownerKey(pod("web-1")), three...)), "bucket owners lacks 1 of 4 entries"},
		"it names another owner":      {put(bucketOwners, append(ownerKey(pod("web-9")), three...), nil), "bucket owners has "},
		"a run ends too soon":         {put(bucketRuns, addressKey(addr("10.3.0.2")), three), "bucket runs has "},
		"a run has a gap":             {remove(bucketRuns, addressKey(addr("10.3.0.2"))), "bucket runs lacks 1 of 2 entries"},
		"a run begins within another": {put(bucketRuns, four, four), "bucket runs has "},
		"an end is missing": {func(tx *bolt.Tx) error {
			k, _ := tx.Bucket([]byte(bucketEnds)).Cursor().First()
			return remove(bucketEnds, k)(tx)
		}, "bucket ends lacks 1 of 1 entries"},
		"what does not end has one":     {put(bucketEnds, append(make([]byte, 8), three...), nil), "bucket ends has "},
		"a lease by another's address":  {changed(func(l map[string]any) { l["address"] = "10.3.0.9" }), "the lease of 10.3.0.9 is kept as that of 10.3.0.3"},
		"held by nobody":                {changed(func(l map[string]any) { delete(l, "holders") }), "the lease of 10.3.0.3 is held and has 0 holders"},
		"quarantined, and has a holder": {changed(func(l map[string]any) { l["state"] = "quarantined" }), "the lease of 10.3.0.3 is quarantined and has 2 holders"},
		"no lease in JSON":              {put(bucketLeases, three, []byte("{")), "10.3.0.3: lease: not usable: "},
		"a lease of another type":       {changed(func(l map[string]any) { l["until"] = 7 }), "10.3.0.3: lease: not usable: "},
	} {
		n := newNode(t, "10.3.0.9", sticky)
		n.add(t, "c1/eth0", "web-0", "10.3.0.2")
		n.add(t, "c2/eth0", "web-1", "10.3.0.3")
		n.add(t, "c3/eth0", "web-1", "10.3.0.3")
		n.policy = minute
		n.add(t, "c4/eth0", "", "10.3.0.4")
		n.del(t, "c4/eth0")
		n.add(t, "c5/eth0", "web-2", "10.3.0.5")
		n.reserve(t, "10.3.0.9", "web-9", 0)
		edit(t, n.path(), test.change)
		err := n.store(t).Verify(t.Context())
		if test.why == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		begins := "store " + n.path() + ": "
		if !strings.HasPrefix(test.why, "10.3.0.3: ") {
			begins += "not usable: "
		}
		if err == nil || !strings.HasPrefix(err.Error(), begins+test.why) || !strings.Contains(err.Error(), ErrDamaged.Error()) {
			t.Errorf("%s: %v, want %s", name, err, test.why)
		}
	}
}

// An index that names an address without a lease is damage. The address does not count as free.
func TestIndexThatNamesNoLease(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	edit(t, n.path(), func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(bucketAttachments)).Put(append(textKey("c1", "eth0"), addressKey(addr("10.3.0.3"))...), nil)
	})
	n.refused(t, "DEL", n.store(t).Release(t.Context(), n.key("c1/eth0"), Policy{}), ErrDamaged,
		"store DIR/pods.db: not usable: an index names 10.3.0.3, which has no lease")
}

// One wrong byte in an index never makes an ADD give what somebody has, nor free it: the lease is read, and the store is damaged.
func TestAWrongByteInAnIndexGivesNothingTwice(t *testing.T) {
	three, five := addressKey(addr("10.3.0.3")), addressKey(addr("10.3.0.5"))
	moved := func(bucket string, prefix []byte) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error {
			b := tx.Bucket([]byte(bucket))
			return errors.Join(b.Delete(append(slices.Clone(prefix), five...)), b.Put(append(slices.Clone(prefix), three...), nil))
		}
	}
	for name, test := range map[string]struct {
		change func(*bolt.Tx) error
		pod    string
		why    string
	}{
		"a run ends too soon": {func(tx *bolt.Tx) error {
			return tx.Bucket([]byte(bucketRuns)).Put(addressKey(addr("10.3.0.2")), addressKey(addr("10.3.0.2")))
		}, "web-9", "store DIR/pods.db: not usable: the index of runs calls 10.3.0.3 free, which has a lease"},
		"a run begins too late": {func(tx *bolt.Tx) error {
			runs := tx.Bucket([]byte(bucketRuns))
			return errors.Join(runs.Delete(addressKey(addr("10.3.0.2"))), runs.Put(five, five))
		}, "web-9", "store DIR/pods.db: not usable: the index of runs calls 10.3.0.2 free, which has a lease"},
		"an owner's address is another one's": {moved(bucketOwners, ownerKey(pod("web-2"))), "web-2",
			"store DIR/pods.db: not usable: an index names 10.3.0.3, whose lease says otherwise"},
		"what ends is another lease": {func(tx *bolt.Tx) error {
			return tx.Bucket([]byte(bucketEnds)).Put(append(make([]byte, 8), three...), nil)
		}, "web-9", "store DIR/pods.db: not usable: an index names 10.3.0.3, whose lease says otherwise"},
		"an attachment's address is another one's": {func(tx *bolt.Tx) error {
			return tx.Bucket([]byte(bucketAttachments)).Put(append(textKey("c9", "eth0"), three...), nil)
		}, "web-9", "store DIR/pods.db: not usable: an index names 10.3.0.3, whose lease says otherwise"},
	} {
		n := newNode(t, "10.3.0.9", sticky)
		n.add(t, "c1/eth0", "web-0", "10.3.0.2")
		n.add(t, "c2/eth0", "web-1", "10.3.0.3")
		n.add(t, "c3/eth0", "web-3", "10.3.0.4")
		n.add(t, "c4/eth0", "web-2", "10.3.0.5")
		n.del(t, "c4/eth0")
		edit(t, n.path(), func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucketLast)).Delete([]byte("0")) })
		edit(t, n.path(), test.change)
		given, err := n.try(t, "c9/eth0", test.pod)
		if err == nil {
			t.Errorf("%s: an ADD gives %s", name, given)
			continue
		}
		n.refused(t, name, err, ErrDamaged, test.why)
	}
}

// One wrong byte in the key of a lease hides it. An ADD that asks for the address does not get it: the runs have it as taken.
func TestAHiddenLeaseIsNotGivenToWhoAsksForIt(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	edit(t, n.path(), func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucketLeases))
		two := addressKey(addr("10.3.0.2"))
		return errors.Join(b.Put(addressKey(addr("10.3.0.7")), b.Get(two)), b.Delete(two))
	})
	given, err := n.try(t, "c9/eth0", "web-9", "10.3.0.2")
	if err == nil {
		t.Fatalf("an ADD gives %s", given)
	}
	n.refused(t, "asked for", err, ErrDamaged, "store DIR/pods.db: not usable: the index of runs has 10.3.0.2 as taken, which has no lease")
}
