package lease

import (
	"errors"
	"os"
	"syscall"
)

// minRoom is allocated beyond twice what is in use.
const minRoom = 256 << 10

// requiredLength returns how long a file must be if so much of it is in use. To give up an address, bbolt writes
// some pages anew, with the quarantine and an event. A GC writes nearly all pages anew at once. The disk is full
// just when pods are evicted for that reason.
func requiredLength(used int64) int64 { return 2*used + minRoom }

// makeRoom allocates the space that is needed to give up all addresses. bbolt makes a file longer without
// allocating anything: on a full disk, the first write to such a page fails. On a copy-on-write file system
// nothing helps. used is how much of the file the last transaction left in use.
func (o *opened) makeRoom(used int64) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(o.file.Fd()), &st); err != nil {
		return err
	}
	const block = 512 // The unit of st_blocks on every file system: stat(2).
	if st.Blocks*block < st.Size {
		if err := fillHoles(o.file, st.Size); err != nil {
			return err
		}
	}
	if st.Size >= requiredLength(used) {
		return nil
	}
	// It is more than needed, so that not every change has to do this.
	return writeZeros(o.file, max(used, st.Size), requiredLength(used)+minRoom)
}

// fillHoles allocates the holes in a file that bbolt has made longer, or that somebody has copied. If the file
// system cannot do that, the file stays as it is.
func fillHoles(f *os.File, size int64) error {
	err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return nil
	}
	return err
}

// writeZeros makes the file longer by writing. With blocks that are only set aside (fallocate), each change that
// uses new ones would have to wait for the journal.
func writeZeros(f *os.File, start, end int64) error {
	zeros := make([]byte, minRoom)
	for start < end {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), end-start)], start)
		if err != nil {
			return err
		}
		start += int64(n)
	}
	return nil
}
