package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
)

// leaseDisk is a disk with the leases of a pool. It is as small as its journal allows.
type leaseDisk struct {
	*pool
	mount string
	// fills says that the disk takes nothing because it is full. Otherwise it is read-only.
	fills bool
}

// wide is a set that is never used up.
const wide = `"ranges": [[{"subnet": "10.7.0.0/16"}]]`

func newLeaseDisk(t *testing.T, keys string, fills bool) *leaseDisk {
	t.Helper()
	d := &leaseDisk{pool: newPool(t, keys), fills: fills}
	top := filepath.Dir(d.dir)
	d.mount = filepath.Join(top, "mount")
	d.dir = filepath.Join(d.mount, "ipam")
	must(t, os.Mkdir(d.mount, 0o700))
	fresh.Run(t, "", fmt.Sprintf("mkfs.ext4 -q -m 0 %[1]s/disk 8M && mount -o loop %[1]s/disk %[2]s", top, d.mount))
	t.Cleanup(func() { must(t, unix.Unmount(d.mount, 0)) })
	return d
}

func (d *leaseDisk) filler() string { return filepath.Join(d.mount, "filler") }

// fill leaves no room on the disk.
func (d *leaseDisk) fill(t *testing.T) {
	t.Helper()
	f, err := os.Create(d.filler())
	must(t, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 1024))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	must(t, f.Sync())
}

func (d *leaseDisk) empty(t *testing.T) {
	t.Helper()
	must(t, os.Remove(d.filler()))
}

// remount makes the disk read-only, or writable if flag is 0.
func (d *leaseDisk) remount(t *testing.T, flag uintptr) {
	t.Helper()
	must(t, unix.Mount("", d.mount, "", unix.MS_REMOUNT|flag, ""))
}

// eachLeaseDisk runs the test with each reason for which a disk takes nothing. Nothing else runs meanwhile: between
// fork and exec, another program's process would keep the disk in use.
func eachLeaseDisk(t *testing.T, keys string, test func(t *testing.T, d *leaseDisk, spoil, mend func(*testing.T))) {
	t.Run("full", func(t *testing.T) {
		d := newLeaseDisk(t, keys, true)
		test(t, d, d.fill, d.empty)
	})
	t.Run("read-only", func(t *testing.T) {
		d := newLeaseDisk(t, keys, false)
		test(t, d, func(t *testing.T) { d.remount(t, unix.MS_RDONLY) }, func(t *testing.T) { d.remount(t, 0) })
	})
}

// untilRefused attaches pods until one is refused, and returns the others.
func (d *leaseDisk) untilRefused(t *testing.T) []claim {
	t.Helper()
	var all []claim
	// These are more leases than fit into the first size of a store.
	for i := range 500 {
		c := d.claim(fmt.Sprintf("c%d", i), fmt.Sprintf("pod%d", i))
		before := d.leases(t)
		out, err := c.plugin("ADD", "").Output()
		if err == nil {
			_, err := printed(out)
			must(t, err)
			all = append(all, c)
			continue
		}
		wasRefused(t, out, err)
		if diff := cmp.Diff(before, d.leases(t)); diff != "" {
			t.Errorf("what was refused changed something:\n%s", diff)
		}
		return all
	}
	t.Fatal("nothing is refused")
	return nil
}

// status expects that STATUS fails only on a read-only disk. A full disk may have room for the next change.
func (d *leaseDisk) status(t *testing.T) {
	t.Helper()
	var fs unix.Statfs_t
	must(t, unix.Statfs(d.mount, &fs))
	if _, err := output(d.claim("a", "a").plugin("STATUS", "")); (err != nil) != (fs.Flags&unix.ST_RDONLY != 0) {
		t.Errorf("STATUS: %v", err)
	}
}

// An ADD that cannot be recorded fails. So does an ADD that would leave no room for its DEL. Everything that is
// recorded stays.
func TestIPAMAddOnADiskThatTakesNothing(t *testing.T) {
	eachLeaseDisk(t, plain+wide, func(t *testing.T, d *leaseDisk, spoil, mend func(*testing.T)) {
		added(t, d.pool, "a", "b", "c")
		deleted(t, d.pool, "b")
		before := d.leases(t)
		spoil(t)
		more := d.untilRefused(t)
		d.sound(t)
		with := d.leases(t)
		if len(with) != len(before)+len(more) || !slices.Equal(with[:2], before[:2]) {
			t.Errorf("%d leases, %d pods were told an address:\n%q", len(with), len(more), with)
		}
		// CHECK only reads.
		_, err := output(d.claim("a", "a").plugin("CHECK", ""))
		must(t, err)
		d.status(t)
		mend(t)
		d.sound(t)
		if diff := cmp.Diff(with, d.leases(t)); diff != "" {
			t.Errorf("other leases:\n%s", diff)
		}
		added(t, d.pool, "x")
		for _, c := range more {
			must(t, c.del())
		}
		deleted(t, d.pool, "x", "a", "c")
		d.sound(t)
		t.Logf("%d more were recorded", len(more))
	})
}

// A failed first ADD leaves no half of a store behind.
func TestIPAMFirstAddOnADiskThatTakesNothing(t *testing.T) {
	eachLeaseDisk(t, plain+wide, func(t *testing.T, d *leaseDisk, spoil, mend func(*testing.T)) {
		must(t, os.MkdirAll(d.dir, 0o700))
		spoil(t)
		d.status(t)
		c := d.claim("c1", "pod1")
		refused(t, c.plugin("ADD", ""))
		if files, err := os.ReadDir(d.dir); err == nil && len(files) > 0 {
			t.Errorf("left: %v", files)
		}
		must(t, c.del())
		mend(t)
		added(t, d.pool, "a")
		d.sound(t)
		d.nothingElse(t)
	})
}

// manyPods are more pods than fit into the first size of a store.
func manyPods() []string {
	var pods []string
	for i := range 64 {
		pods = append(pods, fmt.Sprintf("pod%d", i))
	}
	return pods
}

// A full disk evicts pods. Their DELs work, whatever they leave of a lease. On a read-only disk a DEL reports its
// failure, and the next DEL does the work.
func TestIPAMDelOnADiskThatTakesNothing(t *testing.T) {
	const wideDual = `"ranges": [[{"subnet": "10.7.0.0/16"}], [{"subnet": "fd00:7::/64"}]]`
	for name, kind := range map[string]struct {
		keys string
		left lease.State
	}{
		"plain":         {plain + wide, "quarantined"},
		"no quarantine": {atOnce + wide, ""},
		"sticky":        {sticky + plain + wide, "reserved"},
		"dual":          {plain + wideDual, "quarantined"},
		"sticky dual":   {sticky + wideDual, "reserved"},
	} {
		t.Run(name, func(t *testing.T) {
			eachLeaseDisk(t, kind.keys, func(t *testing.T, d *leaseDisk, spoil, mend func(*testing.T)) {
				pods := manyPods()
				if !d.fills {
					pods = pods[:4] // What is refused does not depend on the size of the store.
				}
				added(t, d.pool, pods...)
				before := d.leases(t)
				spoil(t)
				for _, pod := range pods {
					if d.fills {
						must(t, d.claim(pod, pod).del())
						continue
					}
					refused(t, d.claim(pod, pod).plugin("DEL", ""))
				}
				if diff := cmp.Diff(before, d.leases(t)); !d.fills && diff != "" {
					t.Errorf("a DEL was refused, and gives up:\n%s", diff)
				}
				d.sound(t)
				mend(t)
				d.sound(t)
				deleted(t, d.pool, pods...)
				d.areAll(t, kind.left)
				added(t, d.pool, "x")
			})
		})
	}
}

// areAll expects that every lease is in this state. For an empty state it expects no lease at all.
func (d *leaseDisk) areAll(t *testing.T, state lease.State) {
	t.Helper()
	all := d.list(t)
	if state == "" && len(all) > 0 || state != "" && len(all) == 0 {
		t.Errorf("%d leases are left, wanted is %q", len(all), state)
	}
	for _, l := range all {
		if l.State != state {
			t.Errorf("left: %+v", l)
		}
	}
}

// One call of GC gives up everything, even on a full disk. So does the end of a pod's earlier sandbox.
func TestIPAMGivesUpManyAtOnceOnAFullDisk(t *testing.T) {
	d := newLeaseDisk(t, sticky+plain+wide, true)
	added(t, d.pool, manyPods()...)
	for _, pod := range manyPods()[:8] {
		_, err := d.claim(pod+"-next", pod).add()
		must(t, err)
	}
	d.fill(t)
	for _, pod := range manyPods()[:8] {
		must(t, d.claim(pod, pod).del())
		l, err := d.store(t).HeldBy(t.Context(), d.claim(pod+"-next", pod).key())
		if err != nil || len(l) != 1 || !slices.Equal(holderIDs(l[0]), []string{pod + "-next"}) {
			t.Errorf("%s: %+v, %v", pod, l, err)
		}
	}
	d.loseSandboxes(t)
	_, err := output(d.claim("", "").plugin("GC", validAttachments()))
	must(t, err)
	d.areAll(t, lease.Reserved)
	d.empty(t)
	d.sound(t)
}
