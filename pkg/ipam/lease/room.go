package lease

import (
	"errors"
	"os"
	"syscall"
)

// leastRoom is allocated of the disk beyond twice what is in use.
const leastRoom = 256 << 10

// room returns how long a file is to be of which so much is in use. Whoever gives an address up
// writes some pages anew, with a record of it and of its quarantine. A GC writes nearly all pages
// anew at once. A disk is full at the very moment when pods are evicted for that.
func room(used int64) int64 { return 2*used + leastRoom }

// makeRoom allocates what giving up all that is held may need. bbolt makes a file longer
// without allocating anything: a page that is written there for the first time fails on a
// full disk. On a copy-on-write file system nothing helps. used is how much is in use, as the last
// transaction left it: what comes behind is nobody's.
func (o *opened) makeRoom(used int64) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(o.file.Fd()), &st); err != nil {
		return err
	}
	const block = 512 // Of st_blocks, whatever the file system's is: stat(2).
	if st.Blocks*block < st.Size {
		if err := fillHoles(o.file, st.Size); err != nil {
			return err
		}
	}
	if st.Size >= room(used) {
		return nil
	}
	// More than is needed, so that not every change comes here.
	return writeZeros(o.file, max(used, st.Size), room(used)+leastRoom)
}

// fillHoles allocates what is missing in a file that bbolt has made longer, or that somebody has
// copied. A file system that can't do so is left as it is.
func fillHoles(f *os.File, size int64) error {
	err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return nil
	}
	return err
}

// writeZeros makes the file longer. It writes: blocks that are only set aside (fallocate) would have each
// change that comes to new ones wait for the journal.
func writeZeros(f *os.File, from, to int64) error {
	zeros := make([]byte, leastRoom)
	for from < to {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), to-from)], from)
		if err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}
