package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
)

// operations are all operations that open a store, by name. Each changes a store that eventful has made, or reads it.
func (n *node) operations(t *testing.T) map[string]func() error {
	s := n.store(t)
	ctx := t.Context()
	a := addr("10.3.0.5")
	held := func() Lease { return Lease{Address: a} }
	return map[string]func() error{
		"ADD":     func() error { _, err := s.Allocate(ctx, n.request("new/eth0", "new-0")); return err },
		"DEL":     func() error { return s.Release(ctx, n.key("c1/eth0"), Policy{}) },
		"GC":      func() error { return s.Collect(ctx, func(Holder) bool { return false }) },
		"settled": func() error { return s.ReleasePrevious(ctx, n.key("c9/eth0"), func(Holder) bool { return true }) },
		"abandon": func() error { return s.RemoveHolder(ctx, held(), Holder{ContainerID: "c9", IfName: "eth0"}, "gone") },
		"reserve": func() error { _, err := s.Reserve(ctx, addr("10.3.0.25"), pod("x"), 0); return err },
		"release": func() error {
			seen, err := s.Get(ctx, a)
			if err == nil {
				err = s.ReleaseByHand(ctx, seen)
			}
			return err
		},
		"conflict": func() error {
			_, err := s.Conflict(ctx, n.key("c1/eth0"), addr("10.3.0.2"), "02:00:00:00:00:01")
			return err
		},
		"reset the clock": func() error { _, err := s.ResetClock(ctx); return err },
		"take in": func() error {
			return s.Import(ctx, false, func(ImportView) Import { return Import{} })
		},
		"take in, dry": func() error {
			return s.Import(ctx, true, func(ImportView) Import { return Import{} })
		},
		"list":        func() error { _, err := s.List(ctx); return err },
		"get":         func() error { _, err := s.Get(ctx, a); return err },
		"held by":     func() error { _, err := s.HeldBy(ctx, n.key("c1/eth0")); return err },
		"exhausted":   func() error { _, err := s.Exhausted(ctx, n.sets); return err },
		"usage":       func() error { _, err := s.Usage(ctx); return err },
		"history":     func() error { _, err := s.History(ctx, a); return err },
		"clock ahead": func() error { _, err := s.ClockAhead(ctx); return err },
		"verify":      func() error { return s.Verify(ctx) },
	}
}

// withSchema returns a node with the store that eventful made, changed as another program would.
func withSchema(t *testing.T, change func(*bolt.Tx) error) *node {
	t.Helper()
	n := goldenNode(t)
	edit(t, n.path(), change)
	// bbolt has made the file longer. An ADD would make room in it.
	must(t, os.Truncate(n.path(), used(t, n.path())))
	return n
}

func putMeta(values map[string]string) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error {
		var err error
		for k, v := range values {
			if v == "" {
				err = errors.Join(err, tx.Bucket([]byte(bucketMeta)).Delete([]byte(k)))
				continue
			}
			err = errors.Join(err, tx.Bucket([]byte(bucketMeta)).Put([]byte(k), []byte(v)))
		}
		return err
	}
}

// A store that this relink does not understand stays as it is, whatever the operation.
func TestStoreThatThisRelinkCantReadIsLeftAsItIs(t *testing.T) {
	newer := "a newer relink wrote it, in schema 2, and this one knows schema 1; install the newer one again on this node"
	for name, test := range map[string]struct {
		change func(*bolt.Tx) error
		why    string
	}{
		"newer":     {putMeta(map[string]string{keySchema: "2"}), newer},
		"no schema": {putMeta(map[string]string{keySchema: ""}), `its schema is "", which does not exist`},
		"schema 0":  {putMeta(map[string]string{keySchema: "0"}), `its schema is "0", which does not exist`},
		"no runs":   {func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(bucketRuns)) }, `it has no bucket "runs"`},
		"no events": {func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(bucketEvents)) }, `it has no bucket "events"`},
		"no meta":   {func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(bucketMeta)) }, `it has no bucket "meta"`},
	} {
		n := withSchema(t, test.change)
		before := sumOf(t, n.path())
		for what, operation := range n.operations(t) {
			n.refused(t, name+": "+what, operation(), ErrDamaged, "store DIR/pods.db: not usable: "+test.why)
			if sumOf(t, n.path()) != before {
				t.Fatalf("%s: %s changed the file", name, what)
			}
		}
		if files, err := os.ReadDir(n.dir); err != nil || len(files) != 1 {
			t.Errorf("%s: files %v, %v", name, files, err)
		}
	}
}

// A file that was cut short is not made longer: the missing part would look empty.
func TestStoreThatWasCutShortIsLeftAsItIs(t *testing.T) {
	n := withSchema(t, func(*bolt.Tx) error { return nil })
	size := used(t, n.path())
	must(t, os.Truncate(n.path(), size-1))
	before := sumOf(t, n.path())
	for what, operation := range n.operations(t) {
		n.refused(t, what, operation(), ErrDamaged, fmt.Sprintf("store DIR/pods.db: not usable: it was cut short of its %d bytes", size))
		if sumOf(t, n.path()) != before {
			t.Fatalf("%s changed the file", what)
		}
	}
}

// A newer relink may add to the schema. This one can replace the newer one and be replaced again. Nothing is lost.
func TestNothingThatANewerRelinkAddsIsLost(t *testing.T) {
	n := withSchema(t, func(tx *bolt.Tx) error {
		bucket, err := tx.CreateBucket([]byte("future"))
		if err != nil {
			return err
		}
		nested, err := bucket.CreateBucket([]byte("nested"))
		if err != nil {
			return err
		}
		return errors.Join(bucket.Put([]byte("k"), []byte("v")), nested.Put([]byte("k"), []byte("v")),
			withMoreFields(tx.Bucket([]byte(bucketEvents))),
			putMeta(map[string]string{"future": "1"})(tx))
	})
	operations := n.operations(t)
	delete(operations, "rename") // It leaves no store.
	// The order matters: after some operations, others have nothing to do.
	for _, what := range slices.Sorted(maps.Keys(operations)) {
		if err := operations[what](); errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	n.later(time.Hour)
	n.expectVerified(t)

	stored := contents(t, n.path())
	meta := stored[bucketMeta]
	delete(meta, `"clock"`)
	delete(meta, `"ranges"`)
	if diff := cmp.Diff(map[string]string{`"schema"`: `"1"`, `"future"`: `"1"`, `"boot"`: `"boot-1"`}, meta); diff != "" {
		t.Errorf("meta (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{`"k"`: `"v"`, `"nested"`: `""`}, stored["future"]); diff != "" {
		t.Errorf("the bucket (-want +got):\n%s", diff)
	}
	if got := hasField(t, stored[bucketEvents], "future"); got != eventsInGolden(t) {
		t.Errorf("%d events have what a newer relink adds, want %d", got, eventsInGolden(t))
	}
}

// withMoreFields adds to each event what a newer relink may add.
func withMoreFields(events *bolt.Bucket) error {
	values := map[string][]byte{}
	_ = events.ForEach(func(k, v []byte) error {
		values[string(k)] = withMore(v, map[string]any{"future": 1})
		return nil
	})
	var err error
	for k, v := range values {
		err = errors.Join(err, events.Put([]byte(k), v))
	}
	return err
}

func eventsInGolden(t *testing.T) int {
	t.Helper()
	return len(contents(t, goldenFile("schema1.db"))[bucketEvents])
}

// withMore adds fields to an object in JSON.
func withMore(b []byte, more map[string]any) []byte {
	var o map[string]any
	if err := json.Unmarshal(b, &o); err != nil {
		panic(err)
	}
	maps.Copy(o, more)
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return b
}

// hasField counts the values that have a field.
func hasField(t *testing.T, values map[string]string, field string) (n int) {
	t.Helper()
	for _, v := range values {
		var o map[string]any
		must(t, json.Unmarshal([]byte(v), &o))
		if _, ok := o[field]; ok {
			n++
		}
	}
	return n
}
