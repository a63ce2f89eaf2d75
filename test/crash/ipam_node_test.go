package crash

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// ranges returns a set of n addresses in 10.7.0.0/16. n is less than 200.
func ranges(n int) string {
	return fmt.Sprintf(`"ranges": [[{"subnet": "10.7.0.0/16", "rangeStart": "10.7.0.10", "rangeEnd": "10.7.0.%d"}]]`, 9+n)
}

// pool is a network whose addresses relink-ipam gives.
type pool struct {
	// dir is the directory of the leases. network is the name in the configuration.
	dir, network, netns string
	// keys are the keys of "ipam" other than its type and dataDir.
	keys string
	// programs is the directory of relink-ipam.
	programs string
}

func newPool(t *testing.T, keys string) *pool {
	t.Helper()
	return &pool{dir: filepath.Join(onDisk(t), "ipam"), network: "pods", netns: fresh.Sandbox(t), keys: keys, programs: bin}
}

// onDisk makes a directory on a disk. A file system in memory has no late writes.
func onDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "relink-crash-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	var s unix.Statfs_t
	must(t, unix.Statfs(dir, &s))
	if s.Type == unix.TMPFS_MAGIC {
		t.Fatal("/var/tmp is no disk")
	}
	return dir
}

// loseSandboxes ends the sandboxes of all pods, and nothing is detached. The pool then has an empty one for what is called
// next.
func (p *pool) loseSandboxes(t *testing.T) {
	t.Helper()
	testnode.EndSandbox(t, p.netns)
	p.netns = fresh.Sandbox(t)
}

func (p *pool) path() string { return filepath.Join(p.dir, p.network+".db") }

func (p *pool) store(t testing.TB) *lease.Store {
	t.Helper()
	s, err := lease.Open(p.dir, p.network)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// claim is an attachment that wants an address.
type claim struct {
	*pool
	id, pod string
	// args are more CNI_ARGS.
	args string
	// keys replace those of the pool.
	keys string
}

func (p *pool) claim(id, pod string) claim { return claim{pool: p, id: id, pod: pod} }

func (c claim) cniArgs() string {
	return "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + c.pod + c.args
}

func (c claim) config(more string) string {
	keys := c.keys
	if keys == "" {
		keys = c.pool.keys
	}
	return fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "type": "relink-macvlan", "ipam": {"type": "relink-ipam", "dataDir": %q, %s}%s}`, c.network, c.dir, keys, more)
}

// plugin prepares a call of relink-ipam with more keys in the configuration.
func (c claim) plugin(command, more string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.programs, "relink-ipam"))
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + c.programs, "CNI_COMMAND=" + command, "CNI_CONTAINERID=" + c.id,
		"CNI_NETNS=" + c.netns, "CNI_IFNAME=eth0", "CNI_ARGS=" + c.cniArgs(), allEnv + "=1",
	}
	cmd.Stdin = strings.NewReader(c.config(more))
	return cmd
}

// skelArgs returns the arguments for a call in this process.
func (c claim) skelArgs(more string) *skel.CmdArgs {
	return &skel.CmdArgs{ContainerID: c.id, Netns: c.netns, IfName: "eth0", Args: c.cniArgs(), StdinData: []byte(c.config(more))}
}

// add runs an ADD and returns the addresses that it prints.
func (c claim) add() ([]netip.Addr, error) {
	out, err := output(c.plugin("ADD", ""))
	if err != nil {
		return nil, err
	}
	return printed([]byte(out))
}

// printed reads the output of an ADD.
func printed(out []byte) ([]netip.Addr, error) {
	r, err := current.NewResult(out)
	if err != nil {
		return nil, err
	}
	return addressesOf(r.(*current.Result))
}

func addressesOf(r *current.Result) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, ip := range r.IPs {
		a, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return nil, fmt.Errorf("%v is no address", ip)
		}
		all = append(all, a.Unmap())
	}
	if len(all) == 0 {
		return nil, errors.New("no address")
	}
	return all, nil
}

func (c claim) del() error {
	_, err := output(c.plugin("DEL", ""))
	return err
}

// added is an ADD that makes the state for what is tested. This process does it: another program takes ten times as long.
func (c claim) added(t *testing.T) {
	t.Helper()
	_, _, err := ipam.Add(t.Context(), c.skelArgs(""), nil)
	must(t, err)
}

// deleted is a DEL for the same purpose. The store counts milliseconds: what is deleted next comes later.
func (c claim) deleted(t *testing.T) {
	t.Helper()
	must(t, ipam.Detached(t.Context(), (*ipam.Call).Del, c.skelArgs("")))
	time.Sleep(2 * time.Millisecond)
}

// validAttachments returns the list for a GC.
func validAttachments(ids ...string) string {
	list := make([]types.GCAttachment, 0)
	for _, id := range ids {
		list = append(list, types.GCAttachment{ContainerID: id, IfName: "eth0"})
	}
	b, _ := json.Marshal(list)
	return `, "cni.dev/valid-attachments": ` + string(b)
}

// list returns the leases, or none if nothing was ever given.
func (p *pool) list(t testing.TB) []lease.Lease {
	t.Helper()
	all, err := p.store(t).List(t.Context())
	if err != nil && !errors.Is(err, lease.ErrNotLeased) {
		t.Fatal(err)
	}
	return all
}

// leases returns a line for each lease, without what differs between two runs.
func (p *pool) leases(t testing.TB) []string {
	t.Helper()
	lines := []string{}
	for _, l := range p.list(t) {
		l.ReleasedAt = time.Time{}
		if !l.Until.IsZero() {
			l.Until = time.Unix(0, 0).UTC()
		}
		l.Last = anyTime(l.Last)
		for i, h := range l.Holders {
			l.Holders[i] = anyTime(h)
		}
		b, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(b))
	}
	return lines
}

// anyTime returns the holder without its time and its namespace, because each pool has a namespace of its own.
func anyTime(h lease.Holder) lease.Holder {
	h.Since, h.Namespace = time.Time{}, attachment.Namespace{BootID: h.Namespace.BootID}
	return h
}

// key returns the claim's attachment.
func (c claim) key() attachment.Key {
	return attachment.Key{Network: c.network, ContainerID: c.id, IfName: "eth0"}
}

// holderIDs returns the containers that hold the lease, the oldest first.
func holderIDs(l lease.Lease) []string {
	var ids []string
	for _, h := range l.Holders {
		ids = append(ids, h.ContainerID)
	}
	return ids
}

// sound expects that the store opens and does not contradict itself.
func (p *pool) sound(t testing.TB) {
	t.Helper()
	if _, err := os.Stat(p.path()); errors.Is(err, fs.ErrNotExist) {
		return // Nothing was ever given.
	}
	if err := p.store(t).Verify(t.Context()); err != nil {
		t.Error(err)
	}
	db, err := bolt.Open(p.path(), 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// allCanBeGiven ends everything that keeps an address from being given. Then it expects that exactly n ADDs succeed,
// and that no address is given twice.
func (p *pool) allCanBeGiven(t testing.TB, n int) {
	t.Helper()
	p.endAll(t)
	given := map[netip.Addr]bool{}
	var claims []claim
	for i := range n {
		c := p.claim(fmt.Sprintf("last%d", i), fmt.Sprintf("last%d", i))
		claims = append(claims, c)
		r, _, err := ipam.Add(t.Context(), c.skelArgs(""), nil)
		if err != nil {
			t.Fatalf("after %d of %d: %v\n%s", i, n, err, strings.Join(p.leases(t), "\n"))
		}
		all, err := addressesOf(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if given[a] {
				t.Errorf("%s is given twice", a)
			}
			given[a] = true
		}
	}
	if _, _, err := ipam.Add(t.Context(), p.claim("one", "more").skelArgs(""), nil); !triesLater(err) {
		t.Errorf("one more than %d: %v", n, err)
	}
	for _, c := range claims {
		if err := ipam.Detached(t.Context(), (*ipam.Call).Del, c.skelArgs("")); err != nil {
			t.Error(err)
		}
	}
	p.endReservations(t)
	p.sound(t)
}

// triesLater reports whether the error's code asks for another try later.
func triesLater(err error) bool {
	coded := new(types.Error)
	return errors.As(err, &coded) && coded.Code == types.ErrTryAgainLater
}

// endAll makes every attachment give up what it holds, and releases all reservations.
func (p *pool) endAll(t testing.TB) {
	t.Helper()
	for _, l := range p.list(t) {
		for _, id := range holderIDs(l) {
			if err := ipam.Detached(t.Context(), (*ipam.Call).Del, p.claim(id, "").skelArgs("")); err != nil {
				t.Error(err)
			}
		}
	}
	p.endReservations(t)
}

func (p *pool) endReservations(t testing.TB) {
	t.Helper()
	for _, l := range p.list(t) {
		switch l.State {
		case lease.Held:
			t.Errorf("still held: %+v", l)
		case lease.Reserved:
			if err := p.store(t).End(t.Context(), l, lease.ByHand); err != nil {
				t.Error(err)
			}
		}
	}
}

// inEarlierBoot makes everything in the store look older than the machine's last boot.
func (p *pool) inEarlierBoot(t *testing.T) {
	t.Helper()
	bootID, err := boot.ID()
	must(t, err)
	p.edit(t, func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("leases"))
		changed := map[string][]byte{}
		err := b.ForEach(func(k, v []byte) error {
			changed[string(k)] = bytes.ReplaceAll(v, []byte(bootID), []byte("earlier"))
			return nil
		})
		for k, v := range changed {
			err = errors.Join(err, b.Put([]byte(k), v))
		}
		meta := tx.Bucket([]byte("meta"))
		clock := bytes.ReplaceAll(meta.Get([]byte("clock")), []byte(bootID), []byte("earlier"))
		return errors.Join(err, meta.Put([]byte("clock"), clock), meta.Put([]byte("boot"), []byte("earlier")))
	})
}

// passes lets this much time pass for the store, which counts from its last change.
func (p *pool) passes(t *testing.T, d time.Duration) {
	t.Helper()
	p.edit(t, func(tx *bolt.Tx) error {
		meta := tx.Bucket([]byte("meta"))
		var clock struct {
			Time   time.Time     `json:"time"`
			Uptime time.Duration `json:"uptime"`
			BootID string        `json:"bootID"`
		}
		if err := json.Unmarshal(meta.Get([]byte("clock")), &clock); err != nil {
			return err
		}
		clock.Time = clock.Time.Add(d)
		b, err := json.Marshal(clock)
		return errors.Join(err, meta.Put([]byte("clock"), b))
	})
}

// edit changes the file of the store without relink.
func (p *pool) edit(t *testing.T, change func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(p.path(), 0o600, nil)
	must(t, err)
	defer db.Close()
	must(t, db.Update(change))
}

// owner returns the pod of that name as an owner.
func owner(pod string) attachment.Owner {
	return attachment.Pod{Namespace: "default", Name: pod}.Owner()
}
