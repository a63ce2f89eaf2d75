package ipam

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// commands are the commands that look into the store. Each returns the code that it must have for a damaged file, and
// its error.
func (n *node) commands(t *testing.T) map[string]func() (uint, error) {
	return map[string]func() (uint, error){
		"ADD":    func() (uint, error) { _, err := n.tryAdd(t, "new/eth0", "", ""); return 6, err },
		"DEL":    func() (uint, error) { return 6, n.begin(t, n.args("c1/eth0", "")).Del(t.Context()) },
		"CHECK":  func() (uint, error) { return 6, n.begin(t, n.args("c1/eth0", "")).Check(t.Context()) },
		"STATUS": func() (uint, error) { return 50, n.begin(t, n.args("/", "")).Status(t.Context()) },
		"GC":     func() (uint, error) { return 6, n.gc(t, "[]") },
	}
}

// refuses fails the test unless every command calls the file damaged and leaves it unchanged.
func (n *node) refuses(t *testing.T, what string, file []byte) {
	t.Helper()
	if err := os.WriteFile(n.path(), file, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, command := range n.commands(t) {
		code, err := command()
		if got := parseError(t, err); got.Code != code || !strings.Contains(got.Msg, "store "+n.path()+": not usable: ") {
			t.Errorf("%s: %s: %+v", what, name, got)
		}
		if after, err := os.ReadFile(n.path()); err != nil || !bytes.Equal(after, file) {
			t.Fatalf("%s: %s changed the file: %v", what, name, err)
		}
	}
	if _, err := n.store(t).List(t.Context()); !errors.Is(err, lease.ErrDamaged) {
		t.Errorf("%s: List: %v", what, err)
	}
}

// filledNode returns a node with leases, and the content of their file.
func filledNode(t *testing.T) (*node, []byte) {
	t.Helper()
	n := newNode(t, `"subnet": "10.3.0.0/24"`)
	for i := range 20 {
		n.add(t, fmt.Sprintf("c%d/eth0", i), "", fmt.Sprintf("10.3.0.%d", i+2))
	}
	file, err := os.ReadFile(n.path())
	if err != nil {
		t.Fatal(err)
	}
	return n, file
}

// A file that was cut short is an error at every length. It never counts as an empty store, which would give its
// addresses twice.
func TestFileThatWasCutShortIsDamaged(t *testing.T) {
	n, file := filledNode(t)
	used := usedOf(t, n.path())
	for length := 0; length < used; length += 512 {
		n.refuses(t, fmt.Sprintf("%d of %d bytes", length, len(file)), file[:length])
	}
}

// usedOf returns the length of the part of the file that has pages of bbolt.
func usedOf(t *testing.T, path string) int {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var used int
	_ = db.View(func(tx *bolt.Tx) error {
		used = int(tx.Size())
		return nil
	})
	return used
}

// A page with other content is an error with a code, and no panic. Nobody reads a free page, so that one is no error.
func TestPageOfGarbageIsAnErrorAndNoPanic(t *testing.T) {
	n, file := filledNode(t)
	size, refused := os.Getpagesize(), 0
	for page := range usedOf(t, n.path()) / size {
		for what, garbage := range map[string][]byte{
			"zeros": make([]byte, size), "ones": bytes.Repeat([]byte{0xff}, size), "text": bytes.Repeat([]byte("garbage\n"), size/8),
		} {
			damaged := bytes.Clone(file)
			copy(damaged[page*size:], garbage)
			for name, command := range n.commands(t) {
				if err := os.WriteFile(n.path(), damaged, 0o600); err != nil {
					t.Fatal(err)
				}
				code, err := command()
				if got := parseError(t, err); err != nil && (got.Code != code || !strings.Contains(got.Msg, "not usable: ")) {
					t.Errorf("page %d of %s: %s: %+v", page, what, name, got)
				}
				if err != nil {
					refused++
				}
			}
			if err := os.WriteFile(n.path(), file, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

// A file that is no store stays unchanged. That is the business of whoever put it there.
func TestOtherFilesAreNoStores(t *testing.T) {
	n, file := filledNode(t)
	for what, other := range map[string][]byte{
		"a text":            []byte("10.3.0.2 c1\n"),
		"a long text":       bytes.Repeat([]byte("10.3.0.2 c1\n"), 5000),
		"zeros":             make([]byte, len(file)),
		"its metadata lost": append(make([]byte, 2*os.Getpagesize()), file[2*os.Getpagesize():]...),
	} {
		n.refuses(t, what, other)
	}
}

func TestStoreOfAnotherSchemaIsNamed(t *testing.T) {
	n, file := filledNode(t)
	meta := func(key, value string) func(*bolt.Tx) error {
		return func(tx *bolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte(key), []byte(value)) }
	}
	for name, test := range map[string]struct {
		change []func(*bolt.Tx) error
		why    string
	}{
		"newer": {[]func(*bolt.Tx) error{meta("schema", "2")},
			"a newer relink wrote it, in schema 2, and this one knows schema 1; install the newer one again on this node"},
		"none":      {[]func(*bolt.Tx) error{meta("schema", "")}, `its schema is "", which does not exist`},
		"no number": {[]func(*bolt.Tx) error{meta("schema", "two")}, `its schema is "two", which does not exist`},
		"no runs":   {[]func(*bolt.Tx) error{func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("runs")) }}, `it has no bucket "runs"`},
		"not a lease": {[]func(*bolt.Tx) error{func(tx *bolt.Tx) error {
			b := tx.Bucket([]byte("attachments"))
			k, _ := b.Cursor().Seek([]byte("\x00\x00\x00\x02c1"))
			other := bytes.Clone(k)
			other[len(other)-1] = 1
			return b.Put(other, nil)
		}}, "an index names 10.3.0.1, which has no lease"},
	} {
		if err := os.WriteFile(n.path(), file, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bolt.Open(n.path(), 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range test.change {
			err = errors.Join(err, db.Update(change))
		}
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		err = n.begin(t, n.args("c1/eth0", "")).Del(t.Context())
		n.expectError(t, name, err, 6, "relink-ipam: store DIR/pods.db: not usable: "+test.why)
	}
}

// Nobody waits for the store without end. ADD, DEL and GC then ask for another try, and STATUS says that no ADD would
// work.
func TestWaitForTheStoreIsBounded(t *testing.T) {
	n := newNode(t, `"subnet": "10.3.0.0/24"`)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	f, err := os.Open(n.path())
	if err == nil {
		err = flock.Try(f, flock.Exclusive)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	begin := func(args *skel.CmdArgs) *Call {
		c := n.begin(t, args)
		c.store.SetWait(time.Millisecond)
		return c
	}
	c := begin(n.args("c2/eth0", ""))
	busy := "store DIR/pods.db: in use by another process (held by " + flock.HoldersOf(f)[0] + ") for more than 1ms"
	_, err = c.Add(t.Context())
	n.expectError(t, "ADD", err, 11, "relink-ipam: "+busy)
	n.expectError(t, "DEL", c.Del(t.Context()), 11, "relink-ipam: "+busy)
	n.expectError(t, "STATUS", c.Status(t.Context()), 50, busy)
	n.expectError(t, "GC", begin(n.gcArgs("[]")).GC(t.Context()), 11, "relink-ipam: "+busy)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n.add(t, "c2/eth0", "", "10.3.0.3")
}
