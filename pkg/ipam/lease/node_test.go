package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
)

// node is a node with one network. The test sets its clock and its boots.
type node struct {
	network, dir, boot string
	// machine is the ID of the machine, empty for one that nobody knows.
	machine string
	// day is the time of day, uptime the time since the boot.
	day    time.Time
	uptime time.Duration
	// sets and policy are the ranges and the policy of the configuration.
	sets   []RangeSet
	policy Policy
}

var (
	// minute is the plugin's policy without any key.
	minute = Policy{Quarantine: DefaultQuarantine}
	// sticky keeps an address for its owner.
	sticky = Policy{Sticky: true, Quarantine: DefaultQuarantine}
)

// stickyFor keeps an address for its owner for the time d.
func stickyFor(d time.Duration) Policy {
	return Policy{Sticky: true, Retain: Duration(d), Quarantine: DefaultQuarantine}
}

// subnet returns a range set of one range with the gateway 10.3.0.1.
func subnet(first, last string) RangeSet {
	return RangeSet{{Span: span(first, last), Subnet: netip.MustParsePrefix("10.3.0.0/24"), Gateway: addr("10.3.0.1")}}
}

// newNode returns a node with a range of the addresses from 10.3.0.2 to last.
func newNode(t *testing.T, last string, policy Policy) *node {
	t.Helper()
	return &node{
		network: "pods", dir: t.TempDir(), boot: "boot-1", day: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), uptime: time.Hour,
		sets: []RangeSet{subnet("10.3.0.2", last)}, policy: policy,
	}
}

// later lets time pass.
func (n *node) later(d time.Duration) { n.day, n.uptime = n.day.Add(d), n.uptime+d }

// reboot takes a while. The clock goes on meanwhile.
func (n *node) reboot(boot string, takes time.Duration) {
	n.boot, n.day, n.uptime = boot, n.day.Add(takes), time.Minute
}

func (n *node) store(t *testing.T) *Store {
	t.Helper()
	s, err := Open(n.dir, n.network)
	if err != nil {
		t.Fatal(err)
	}
	s.bootID, s.clock = n.boot, func() time.Time { return n.day }
	s.uptime = func() (time.Duration, error) { return n.uptime, nil }
	s.machine = func() string { return n.machine }
	return s
}

func (n *node) path() string { return filepath.Join(n.dir, n.network+extension) }

// key returns the attachment "sandbox/interface".
func (n *node) key(sandbox string) attachment.Key {
	id, ifname, _ := strings.Cut(sandbox, "/")
	return attachment.Key{Network: n.network, ContainerID: id, IfName: ifname}
}

// pod returns the owner of that name, or nobody for an empty name.
func pod(name string) attachment.Owner {
	return attachment.Pod{Namespace: "default", Name: name}.Owner()
}

func (n *node) request(sandbox, owner string, wanted ...string) Request {
	r := Request{Attachment: n.key(sandbox), Owner: pod(owner), Sets: n.sets, Policy: n.policy}
	if owner != "" {
		r.Pod = attachment.Pod{Namespace: "default", Name: owner, UID: owner + "-uid"}
	}
	for _, a := range wanted {
		r.RequestedAddresses = append(r.RequestedAddresses, addr(a))
	}
	return r
}

// try returns the addresses that an ADD gives, with spaces between them.
func (n *node) try(t *testing.T, sandbox, owner string, wanted ...string) (string, error) {
	t.Helper()
	given, err := n.store(t).Allocate(t.Context(), n.request(sandbox, owner, wanted...))
	var all []string
	for _, l := range given {
		all = append(all, l.Address.String())
	}
	return strings.Join(all, " "), err
}

// add is an ADD that gives the addresses.
func (n *node) add(t *testing.T, sandbox, owner, addresses string) {
	t.Helper()
	if got, err := n.try(t, sandbox, owner); err != nil || got != addresses {
		t.Fatalf("ADD of %s gives %q, %v, want %s", sandbox, got, err, addresses)
	}
}

// addWanted is an ADD that asks for an address and gets it.
func (n *node) addWanted(t *testing.T, sandbox, owner, address string) {
	t.Helper()
	if got, err := n.try(t, sandbox, owner, address); err != nil || got != address {
		t.Fatalf("ADD of %s gives %q, %v, want %s", sandbox, got, err, address)
	}
}

func (n *node) del(t *testing.T, sandbox string) {
	t.Helper()
	must(t, n.store(t).Release(t.Context(), n.key(sandbox), Policy{}))
}

func (n *node) settled(t *testing.T, sandbox string) {
	t.Helper()
	must(t, n.store(t).ReleasePrevious(t.Context(), n.key(sandbox), func(Holder) bool { return true }))
}

func (n *node) reserve(t *testing.T, address, owner string, retain time.Duration) Lease {
	t.Helper()
	l, err := n.store(t).Reserve(t.Context(), addr(address), pod(owner), retain)
	must(t, err)
	return l
}

func (n *node) get(t *testing.T, address string) Lease {
	t.Helper()
	l, err := n.store(t).Get(t.Context(), addr(address))
	must(t, err)
	return l
}

// lines returns a line for each lease: "address state holders owner".
func (n *node) lines(t *testing.T) []string {
	t.Helper()
	all, err := n.store(t).List(t.Context())
	if err != nil && !errors.Is(err, ErrNotLeased) {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range all {
		lines = append(lines, line(l))
	}
	return lines
}

func line(l Lease) string {
	holders := l.Holders
	if len(holders) == 0 && l.Last.ContainerID != "" {
		holders = []Holder{l.Last}
	}
	var who []string
	for _, h := range holders {
		who = append(who, h.ContainerID+"/"+h.IfName)
	}
	words := []string{l.Address.String(), string(l.State), strings.Join(who, "+"), l.Owner.Name}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

// expect compares the leases with the lines.
func (n *node) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, n.lines(t), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
	n.expectVerified(t)
}

// expectVerified fails the test if an index does not match the leases.
func (n *node) expectVerified(t *testing.T) {
	t.Helper()
	if err := n.store(t).Verify(t.Context()); err != nil && !errors.Is(err, ErrNotLeased) {
		t.Error(err)
	}
}

// refused fails the test unless errors.Is matches, and the error has this text. "DIR" stands for the directory of the
// leases.
func (n *node) refused(t *testing.T, what string, err, is error, msg string) {
	t.Helper()
	if !errors.Is(err, is) {
		t.Errorf("%s: %v, want %v", what, err, is)
	}
	if diff := cmp.Diff(msg, strings.ReplaceAll(fmt.Sprint(err), n.dir, "DIR")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// edit changes the file as another program would.
func edit(t rapid.TB, path string, change func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, errors.Join(db.Update(change), db.Close()))
}
