package vm

import (
	"bytes"
	"fmt"
)

// cpioArchive writes the "newc" archive that the kernel unpacks as its initramfs.
type cpioArchive struct {
	buf   bytes.Buffer
	inode int
}

const (
	cpioDirectory = 0o040755
	cpioProgram   = 0o100755
)

func (a *cpioArchive) directory(name string) {
	a.entry(name, cpioDirectory, nil)
}

func (a *cpioArchive) file(name string, data []byte) {
	a.entry(name, cpioProgram, data)
}

// finish returns the archive, which must not be added to any more.
func (a *cpioArchive) finish() []byte {
	a.entry("TRAILER!!!", 0, nil)
	return a.buf.Bytes()
}

// entry writes a header of 13 hexadecimal numbers, the name and the data, each padded to 4 bytes.
func (a *cpioArchive) entry(name string, mode int, data []byte) {
	a.inode++
	a.buf.WriteString("070701")
	links, owner, time, device := 1, 0, 0, 0
	for _, field := range []int{
		a.inode, mode, owner, owner, links, time, len(data), device, device, device, device, len(name) + 1, 0,
	} {
		fmt.Fprintf(&a.buf, "%08X", field)
	}
	a.buf.WriteString(name + "\x00")
	a.pad()
	a.buf.Write(data)
	a.pad()
}

func (a *cpioArchive) pad() {
	for a.buf.Len()%4 != 0 {
		a.buf.WriteByte(0)
	}
}
