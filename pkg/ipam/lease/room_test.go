package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/test/fresh"
)

// disk is a small ext4 file system with the leases of a node.
type disk struct {
	*node
	mount string
}

func newDisk(t *testing.T, size string, policy Policy) *disk {
	t.Helper()
	d := &disk{node: newNode(t, "10.3.0.254", policy)}
	d.sets = []RangeSet{{{Span: span("10.3.0.2", "10.3.255.254"), Subnet: netip.MustParsePrefix("10.3.0.0/16"), Gateway: addr("10.3.0.1")}}}
	d.mount = filepath.Join(d.dir, "mount")
	must(t, os.Mkdir(d.mount, 0o700))
	fresh.Run(t, "", fmt.Sprintf("mkfs.ext4 -q -m 0 %[1]s/disk %[2]s && mount -o loop %[1]s/disk %[3]s", d.dir, size, d.mount))
	t.Cleanup(func() { // Another process can look at a new file system for a moment. A store that stays open keeps it busy for good.
		err := unix.Unmount(d.mount, 0)
		for deadline := time.Now().Add(20 * time.Second); errors.Is(err, unix.EBUSY) && time.Now().Before(deadline); err = unix.Unmount(d.mount, 0) {
			time.Sleep(20 * time.Millisecond)
		}
		must(t, err)
	})
	d.dir = filepath.Join(d.mount, "ipam")
	return d
}

// fill leaves no room on the disk.
func (d *disk) fill(t *testing.T) {
	t.Helper()
	f, err := os.Create(filepath.Join(d.mount, "filler"))
	must(t, err)
	defer f.Close()
	for _, part := range []int{64 << 10, 1 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, part))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		must(t, f.Sync())
	}
}

// allocated returns the bytes that the file takes on the disk, and its size.
func (d *disk) allocated(t *testing.T) (allocated, size int64) {
	t.Helper()
	var st syscall.Stat_t
	must(t, syscall.Stat(d.path(), &st))
	return st.Blocks * 512, st.Size
}

// pods attaches the pods with these numbers. Each has its own sandbox, named by sandbox and the number.
func (d *disk) pods(t *testing.T, sandbox string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := d.try(t, fmt.Sprintf("%s%060d/eth0", sandbox, i), fmt.Sprintf("a-stateful-set-with-a-name-of-some-length-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
}

func (d *disk) sandbox(name string, i int) attachment.Key {
	return d.key(fmt.Sprintf("%s%060d/eth0", name, i))
}

// After an ADD, the whole file is on the disk, and so is the room that giving up its addresses needs.
func TestAddMakesRoomOnTheDisk(t *testing.T) {
	d := newDisk(t, "32M", sticky)
	d.pods(t, "c", 0, 1)
	allocated, size := d.allocated(t)
	if allocated < size || size < minRoom {
		t.Errorf("the first ADD leaves a file of %d bytes, %d of them on the disk", size, allocated)
	}
	for i := 1; i < 600; i++ {
		before := used(t, d.path())
		d.pods(t, "c", i, i+1)
		if allocated, _ := d.allocated(t); allocated < requiredLength(before) {
			t.Fatalf("ADD %d leaves %d bytes on the disk, %d were in use", i, allocated, before)
		}
	}
	// Make a copy with holes, as some backup programs do.
	fresh.Run(t, "", fmt.Sprintf("cp --sparse=always %[1]s %[1]s.copy && mv %[1]s.copy %[1]s", d.path()))
	if allocated, size := d.allocated(t); allocated >= size {
		t.Fatalf("the copy has no holes: %d bytes of %d", allocated, size)
	}
	before := used(t, d.path())
	d.pods(t, "c", 599, 600) // A repeated ADD takes no more room.
	if allocated, _ := d.allocated(t); allocated < requiredLength(before) {
		t.Errorf("after an ADD in the copy, %d bytes are on the disk, %d were in use", allocated, before)
	}
}

// A full disk evicts pods. The reserved room is there so that their addresses can be given up.
func TestAllIsGivenUpOnAFullDisk(t *testing.T) {
	const many = 300
	gone := func(t *testing.T, d *disk, state State) {
		t.Helper()
		counts := map[State]int{}
		all, err := d.store(t).List(t.Context())
		must(t, err)
		for _, l := range all {
			counts[l.State]++
		}
		if counts[state] != many || len(all) != many {
			t.Errorf("%v, want %d %s", counts, many, state)
		}
	}
	del := func(name string) func(*testing.T, *disk) {
		return func(t *testing.T, d *disk) {
			for i := range many {
				if err := d.store(t).Release(t.Context(), d.sandbox(name, i), Policy{}); err != nil {
					t.Fatalf("DEL %d: %v", i, err)
				}
			}
		}
	}
	twice := func(t *testing.T, d *disk) {
		d.pods(t, "c", 0, many)
		d.pods(t, "next", 0, many)
	}
	once := func(t *testing.T, d *disk) { d.pods(t, "c", 0, many) }
	for name, test := range map[string]struct {
		policy Policy
		add    func(*testing.T, *disk)
		giveUp func(*testing.T, *disk)
		want   State
	}{
		"DEL of each, in quarantine": {minute, once, del("c"), Quarantined},
		"DEL of each, sticky":        {stickyFor(72 * time.Hour), once, del("c"), Reserved},
		"DEL of each of two holders": {sticky, twice, func(t *testing.T, d *disk) {
			del("c")(t, d)
			del("next")(t, d)
		}, Reserved},
		"settled, then DEL of each": {sticky, twice, func(t *testing.T, d *disk) {
			for i := range many {
				must(t, d.store(t).ReleasePrevious(t.Context(), d.sandbox("next", i), func(Holder) bool { return true }))
			}
			del("next")(t, d)
		}, Reserved},
		"GC of all at once": {sticky, twice, func(t *testing.T, d *disk) {
			must(t, d.store(t).Collect(t.Context(), func(Holder) bool { return false }))
		}, Reserved},
		"abandon of each": {minute, once, func(t *testing.T, d *disk) {
			all, err := d.store(t).List(t.Context())
			must(t, err)
			for _, l := range all {
				must(t, d.store(t).RemoveHolder(t.Context(), l, l.Holders[0], "its sandbox is proven gone"))
			}
		}, Quarantined},
		"DEL of each, taken in and no ADD since": {minute, func(t *testing.T, d *disk) {
			var all []Lease
			for i, a := 0, addr("10.3.0.2"); i < many; i, a = i+1, a.Next() {
				key := d.sandbox("c", i)
				h := Holder{
					ContainerID: key.ContainerID, IfName: key.IfName, Namespace: attachment.Namespace{BootID: d.boot},
					Since: d.day, Origin: Imported, Policy: stickyFor(time.Hour),
				}
				all = append(all, Lease{Address: a, Owner: pod(fmt.Sprint("web-", i)), State: Held, Holders: []Holder{h}})
			}
			d.takeIn(t, "host-local", all...)
		}, del("c"), Reserved},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t, "48M", test.policy)
			test.add(t, d)
			d.fill(t)
			test.giveUp(t, d)
			d.expectVerified(t)
			gone(t, d, test.want)
		})
	}
}

// An import that does not fit leaves nothing behind, and stops no DEL.
func TestImportThatDoesNotFitChangesNothing(t *testing.T) {
	d := newDisk(t, "8M", minute)
	d.pods(t, "c", 0, 50)
	before := d.lines(t)
	var all []Lease
	for i, a := 0, addr("10.3.10.0"); i < 40000; i, a = i+1, a.Next() {
		all = append(all, Lease{Address: a, State: Reserved, Reason: "a pod may have it"})
	}
	err := d.store(t).Import(t.Context(), false, func(ImportView) Import { return Import{Leases: all} })
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("taken in: %v", err)
	}
	d.expect(t, "after what did not fit", before...)
	d.fill(t)
	d.giveAllUp(t, 50)
}

// An ADD that is refused gives nothing, and uses none of the room that a DEL needs.
func TestAddOnAFullDiskChangesNothing(t *testing.T) {
	d := newDisk(t, "8M", minute)
	d.pods(t, "c", 0, 50)
	d.fill(t)
	var given, refused int
	for refused < 20 && given < 1000 {
		before := d.lines(t)
		_, err := d.try(t, fmt.Sprintf("c%060d/eth0", 50+given), "more")
		if err == nil {
			given++
			continue
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		refused++
		d.expect(t, "after an ADD that was refused", before...)
	}
	if refused == 0 {
		t.Error("no ADD is refused on a full disk")
	}
	if _, err := d.store(t).Reserve(t.Context(), addr("10.3.200.1"), pod("x"), 0); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a reservation: %v", err)
	}
	d.giveAllUp(t, 50+given)
	must(t, os.Remove(filepath.Join(d.mount, "filler")))
	d.pods(t, "later", 0, 1)
}

// giveAllUp sends the DELs of that many pods.
func (d *disk) giveAllUp(t *testing.T, pods int) {
	t.Helper()
	for i := range pods {
		must(t, d.store(t).Release(t.Context(), d.sandbox("c", i), Policy{}))
	}
	d.expectVerified(t)
	all := d.lines(t)
	if len(all) != pods {
		t.Errorf("%d leases, want %d", len(all), pods)
	}
	for _, l := range all {
		if !strings.Contains(l, " quarantined ") {
			t.Errorf("left: %s", l)
		}
	}
}

// The first ADD on a full disk leaves nothing behind.
func TestFirstAddOnAFullDiskLeavesNothing(t *testing.T) {
	d := newDisk(t, "8M", minute)
	must(t, os.Mkdir(d.dir, 0o700))
	d.fill(t)
	if _, err := d.try(t, "c1/eth0", ""); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v", err)
	}
	if files, err := os.ReadDir(d.dir); err != nil || len(files) > 0 {
		t.Errorf("left: %v, %v", files, err)
	}
	must(t, os.Remove(filepath.Join(d.mount, "filler")))
	d.add(t, "c1/eth0", "", "10.3.0.2")
}

// Linux 6.1 lets any signal end fallocate(2) on a tmpfs. Newer kernels do not: the story kernel runs this in the test machine.
func TestHolesAreFilledWhileSignalsCome(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"))
	defer func() { must(t, unix.Unmount(dir, 0)) }()
	f, err := os.Create(filepath.Join(dir, "store"))
	must(t, err)
	defer f.Close()
	const size = 32 << 20
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, done := unix.Gettid(), make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
			time.Sleep(time.Millisecond)
		}
	}()
	for signalled := false; !signalled; {
		select {
		case <-done:
			signalled = true
		default:
		}
		must(t, f.Truncate(0))
		must(t, f.Truncate(size))
		must(t, fillHoles(f, size))
	}
	var st unix.Stat_t
	if must(t, unix.Fstat(int(f.Fd()), &st)); st.Blocks*512 != size {
		t.Errorf("%d of %d bytes are allocated", st.Blocks*512, size)
	}
}
