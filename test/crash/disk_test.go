package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/fresh"
)

// static is a delegate that stores nothing.
const static = `{"type": "static", "addresses": [{"address": "10.9.0.9/16"}]}`

// disk is a small file system for the checkpoints.
type disk struct {
	*node
	filler string
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	n := newNode(t)
	must(t, unix.Mount("tmpfs", n.store.Dir(), "tmpfs", 0, "size=256k"))
	t.Cleanup(func() { must(t, unix.Unmount(n.store.Dir(), 0)) })
	return &disk{node: n, filler: filepath.Join(n.store.Dir(), ".filler")}
}

// fill leaves no room on the disk.
func (d *disk) fill(t *testing.T) {
	t.Helper()
	f, err := os.Create(d.filler)
	must(t, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 512))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

func (d *disk) empty(t *testing.T) {
	t.Helper()
	must(t, os.Remove(d.filler))
}

func (d *disk) readOnly(t *testing.T) {
	t.Helper()
	must(t, unix.Mount("", d.store.Dir(), "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
}

func (d *disk) writable(t *testing.T) {
	t.Helper()
	must(t, unix.Mount("", d.store.Dir(), "", unix.MS_REMOUNT, ""))
}

// eachFailure runs the test with each reason for which a disk takes nothing.
func eachFailure(t *testing.T, test func(t *testing.T, d *disk, spoil, mend func(*testing.T))) {
	t.Run("full", func(t *testing.T) {
		d := newDisk(t)
		test(t, d, d.fill, d.empty)
	})
	t.Run("read-only", func(t *testing.T) {
		d := newDisk(t)
		test(t, d, d.readOnly, d.writable)
	})
}

// refused runs the plugin, and expects the CNI error code for an I/O failure.
func refused(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.Output()
	wasRefused(t, out, err)
}

func wasRefused(t *testing.T, out []byte, err error) {
	t.Helper()
	const ioFailure = 5
	var said struct {
		Code int
		Msg  string
	}
	if jsonErr := json.Unmarshal(out, &said); err == nil || jsonErr != nil || said.Code != ioFailure || said.Msg == "" {
		t.Errorf("%v, said %s", err, out)
	}
}

// An ADD whose checkpoint cannot be written fails. All existing checkpoints stay.
func TestAddOnADiskThatTakesNothing(t *testing.T) {
	for name, chained := range map[string]bool{"relink-macvlan": false, "relink-checkpoint": true} {
		t.Run(name, func(t *testing.T) {
			eachFailure(t, func(t *testing.T, d *disk, spoil, mend func(*testing.T)) {
				other := d.newPod(t, "other", chained)
				must(t, other.add())
				before := d.records(t)
				spoil(t)
				p := d.newPod(t, "c1", chained)
				cmd, err := p.addLast()
				must(t, err)
				refused(t, cmd)
				if !chained {
					// The runtime's DEL comes, but it has nothing left to do.
					if got := links(t, p.netns); !slices.Equal(got, []string{"lo"}) {
						t.Errorf("the sandbox has %v", got)
					}
					if held := d.held(t); !slices.Equal(held, []string{"other"}) {
						t.Errorf("addresses are held by %v", held)
					}
				}
				sameRecords(t, before, d.records(t))
				mend(t)
				must(t, p.del())
				p.gone(t)
				sameRecords(t, before, d.records(t))
				must(t, p.add())
				d.says(t, 0, "check")
			})
		})
	}
}

// The attachment's own earlier checkpoint stays.
func TestAddAgainOnADiskThatTakesNothing(t *testing.T) {
	eachFailure(t, func(t *testing.T, d *disk, spoil, mend func(*testing.T)) {
		p := d.newPod(t, "c1", false)
		p.ipam = static
		must(t, p.add())
		before := d.records(t)
		fresh.IP(t, p.netns, "link del eth0")
		spoil(t)
		refused(t, p.plugin("relink-macvlan", "ADD", ""))
		sameRecords(t, before, d.records(t))
		if p.attached(t) {
			t.Error("it is attached")
		}
		mend(t)
		d.restored(t)
		if !p.attached(t) {
			t.Error("its checkpoint did not bring it back")
		}
		d.nothingTemporary(t)
	})
}

// A DEL needs no room. If nothing can be written at all, the DEL says so, and the next DEL does the rest.
func TestDelOnADiskThatTakesNothing(t *testing.T) {
	for name, chained := range map[string]bool{"relink-macvlan": false, "relink-checkpoint": true} {
		t.Run(name, func(t *testing.T) {
			t.Run("full", func(t *testing.T) {
				d := newDisk(t)
				p := d.newPod(t, "c1", chained)
				must(t, p.add())
				d.fill(t)
				must(t, p.del())
				d.empty(t)
				p.gone(t)
			})
			t.Run("read-only", func(t *testing.T) {
				d := newDisk(t)
				p := d.newPod(t, "c1", chained)
				must(t, p.add())
				before := d.records(t)
				d.readOnly(t)
				refused(t, p.delFirst())
				sameRecords(t, before, d.records(t))
				if !p.attached(t) {
					t.Error("it is gone, and remembered")
				}
				d.writable(t)
				must(t, p.del())
				p.gone(t)
			})
		})
	}
}

func TestCaptureOnADiskThatTakesNothing(t *testing.T) {
	eachFailure(t, func(t *testing.T, d *disk, spoil, mend func(*testing.T)) {
		known, stock := d.newPod(t, "known", false), d.newPod(t, "stock", true)
		must(t, known.add())
		_, err := output(stock.plugin("macvlan", "ADD", ""))
		must(t, err)
		stock.remember(t)
		before := d.records(t)
		fresh.IP(t, known.netns, "link set eth0 mtu 1400")
		spoil(t)
		d.says(t, 1, "capture", "1 kept, 1 failed")
		sameRecords(t, before, d.records(t))
		d.says(t, 1, "capture --refresh", "2 failed")
		sameRecords(t, before, d.records(t))
		mend(t)
		if left := d.temporary(t); len(left) > 0 {
			t.Errorf("temporary files are left: %v", left)
		}
		d.says(t, 0, "capture --refresh", "1 captured, 1 refreshed")
		d.says(t, 0, "check")
	})
}

// A restore that cannot write the parent's new name says so. The earlier mappings are still there.
func TestRestoreOnADiskThatTakesNothing(t *testing.T) {
	eachFailure(t, func(t *testing.T, d *disk, spoil, mend func(*testing.T)) {
		var pods []*pod
		for i := range 3 {
			p := d.newPod(t, fmt.Sprintf("c%d", i), i == 2)
			must(t, p.add())
			pods = append(pods, p)
		}
		before := d.records(t)
		spoil(t)
		fresh.Run(t, "", "ip link del lan0; ip link add lan9 type veth peer name lan1; ip link set lan1 up")
		d.says(t, 1, "restore --wait 5s --parent lan0=lan9", "3 failed")
		sameRecords(t, before, d.records(t))
		mend(t)
		d.says(t, 0, "restore --wait 5s --parent lan0=lan9")
		d.says(t, 0, "restore --wait 5s", "3 as recorded")
		for id, r := range d.records(t) {
			if got := r.Interface.Parents[0].Name; got != "lan9" {
				t.Errorf("the parent of %s is %s", id, got)
			}
		}
		for _, p := range pods {
			if !p.attached(t) {
				t.Errorf("%s is not attached", p.id)
			}
			must(t, p.del())
		}
		fresh.IP(t, "", "link set lan9 down name lan0")
		pods[0].gone(t)
	})
}

// Half of a checkpoint never counts as a checkpoint.
func TestNothingIsReadFromATornFile(t *testing.T) {
	d := newDisk(t)
	p := d.newPod(t, "c1", false)
	must(t, p.add())
	path := filepath.Join(d.store.Dir(), "c1", "eth0.json")
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, b[:len(b)/2], 0o600))
	if _, err := d.store.Load("c1", "eth0"); !errors.Is(err, checkpoint.ErrTorn) {
		t.Error(err)
	}
	loseParent(t)
	d.says(t, 1, "restore --wait 5s", "torn", "1 failed")
	must(t, p.del())
	fresh.IP(t, "", "link set lan0 up")
	p.gone(t)
}
