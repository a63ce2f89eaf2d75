package lease

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// machineDisk is the disk on which the stores of all lives are, one after the other.
type machineDisk struct {
	*disk
	t *testing.T
	// full says that other programs have filled the disk.
	full bool
	// roomy says that an ADD has made room in the store since somebody else wrote it.
	roomy bool
	// fills and refused are counters.
	fills, refused int
}

func (m *machine) fillDisk(t *rapid.T) {
	m.disk.needsRoom(t)
	m.disk.fill(m.disk.t)
	m.disk.full = true
	m.disk.fills++
}

// copyWithHoles replaces the file by a copy that uses no disk blocks for zeros.
func (m *machine) copyWithHoles(t *rapid.T) {
	m.disk.needsRoom(t)
	b, err := os.ReadFile(m.store.path)
	must(t, err)
	f, err := os.Create(m.store.path + ".sparse")
	must(t, err)
	const page = 4096
	zeros := make([]byte, page)
	for at := 0; at < len(b); at += page {
		if part := b[at:min(at+page, len(b))]; !bytes.Equal(part, zeros[:len(part)]) {
			_, err := f.WriteAt(part, int64(at))
			must(t, err)
		}
	}
	must(t, errors.Join(f.Truncate(int64(len(b))), f.Close(), os.Rename(f.Name(), m.store.path)))
	m.disk.roomy = false
}

func (m *machine) emptyDisk(*rapid.T) { m.disk.empty() }

func (d *machineDisk) empty() {
	d.full = false
	if err := os.Remove(filepath.Join(d.mount, "filler")); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
}

// needsRoom skips an action of others on the store's file while the disk is full.
func (d *machineDisk) needsRoom(t *rapid.T) {
	if d.full {
		t.Skip("the disk is full")
	}
}

// lacksRoom reports whether an operation has failed and changed nothing because the disk is full. An operation that
// needs more of the disk may fail. One that gives something up may not, once an ADD has made room for it.
func (d *machineDisk) lacksRoom(t *rapid.T, err error, needsMore bool) bool {
	if !errors.Is(err, unix.ENOSPC) {
		return false
	}
	if !d.full || !needsMore && d.roomy {
		t.Fatalf("no room (full: %v, an ADD has made some: %v): %v", d.full, d.roomy, err)
	}
	d.refused++
	return true
}
