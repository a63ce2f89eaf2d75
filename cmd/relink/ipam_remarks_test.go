package main

import (
	"bytes"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// list and usage report a network whose rename was killed, and say what to do.
func TestNetworkThatIsBeingRenamedIsSaid(t *testing.T) {
	dir := t.TempDir()
	store, err := lease.Open(dir, "lan")
	if err != nil {
		t.Fatal(err)
	}
	owner := attachment.Pod{Namespace: "default", Name: "web-0"}.Owner()
	if _, err := store.Reserve(t.Context(), netip.MustParseAddr("10.3.0.2"), owner, 0); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(filepath.Join(dir, "lan.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("renaming to"), []byte("vlan3"))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	const want = "network lan is being renamed: run relink ipam rename lan vlan3 again"
	var stdout, stderr bytes.Buffer
	if err := listLeases(t.Context(), leaseDir(dir), leaseChoice{}, format{}, &screen{out: &stdout, err: &stderr}); err != nil {
		t.Fatal(err)
	}
	if got := stderr.String(); got != "relink: "+want+"\n" || !strings.Contains(stdout.String(), "10.3.0.2") {
		t.Errorf("list says %q and\n%s", got, stdout.String())
	}
	if u, err := usageOf(t.Context(), store); err != nil || !slices.Contains(u.Remarks, want) {
		t.Errorf("usage: %+v, %v", u, err)
	}
}
