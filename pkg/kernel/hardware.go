package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/netstate"
)

// VFError is ErrUnsupported for a virtual function of SR-IOV (netstate.VFReason).
type VFError struct {
	// Name is the device's. PF is the bus address of its physical function.
	Name, PF string
}

func (e *VFError) Error() string { return netstate.VFReason(e.Name, e.PF) }

// Is makes it an ErrUnsupported for errors.Is.
func (e *VFError) Is(target error) bool { return target == ErrUnsupported }

// hardware returns what identifies the NIC, whatever its name is. pf is the bus address of its physical function, empty unless it is a VF.
func (n *Namespace) hardware(l *link) (nic netstate.NIC, pf string) {
	nic = l.nic
	if l.flags&unix.IFF_LOOPBACK != 0 {
		return nic, ""
	}
	port, pf, err := n.fromSysfs(l)
	if err != nil {
		return nic, "" // The NIC has gone in the meantime, or there is no sysfs.
	}
	if nic.Identified() {
		nic.DevPort = port
	}
	return nic, pf
}

// fromSysfs returns what netlink does not tell: the port of its hardware that the NIC is, and the physical function of a VF.
func (n *Namespace) fromSysfs(l *link) (port, pf string, err error) {
	sysfs, err := n.openSysfs()
	if err != nil {
		return "", "", err
	}
	defer func() { _ = sysfs.Close() }()
	dir, err := n.sysfsDir(sysfs, l)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = dir.Close() }()
	if port, err = readAt(dir, "dev_port"); err != nil {
		return "", "", err
	}
	return port, linkedAt(dir, "device/physfn"), nil
}

// linkedAt returns the last part of what the link leads to, empty if there is no link.
func linkedAt(dir *os.File, path string) string {
	target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), path))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// sysfsDir opens the directory of the device. Once it is open, it stays the directory of this
// device, even if that is renamed. Until then, another device can get the name.
func (n *Namespace) sysfsDir(sysfs *os.File, l *link) (*os.File, error) {
	for name := l.Name; ; {
		dir, err := openAt(sysfs, filepath.Join("class/net", name), unix.O_DIRECTORY)
		if err == nil {
			index, err := readAt(dir, "ifindex")
			if err == nil && index == strconv.Itoa(l.Index) {
				return dir, nil
			}
			_ = dir.Close()
		}
		current, err := n.linkByIndex(l.Index)
		if err != nil {
			return nil, err
		}
		if current.Name == name {
			return nil, fmt.Errorf("%s of %s is not in sysfs: %w", name, n.Path(), ErrNoDevice)
		}
		name = current.Name
	}
}

// openSysfs opens a sysfs that shows the devices of n. Each mount of sysfs shows the devices of one
// namespace.
func (n *Namespace) openSysfs() (*os.File, error) {
	if n.isProcessNamespace() {
		return os.Open("/sys")
	}
	fd := -1
	err := n.Inside(func() (err error) {
		fs, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("open sysfs: %w", err)
		}
		defer func() { _ = unix.Close(fs) }()
		if err := unix.FsconfigCreate(fs); err != nil {
			return fmt.Errorf("open sysfs: %w", err)
		}
		fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_RDONLY)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "sysfs"), nil
}

// isProcessNamespace says that n is the namespace of the process.
func (n *Namespace) isProcessNamespace() bool {
	fd, err := identity.ProcessNamespace()
	var st unix.Stat_t
	return err == nil && unix.Fstat(fd, &st) == nil && st.Dev == n.id.Device && st.Ino == n.id.Inode
}

func openAt(dir *os.File, path string, flags int) (*os.File, error) {
	fd, err := openDescriptor(dir, path, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), path)), nil
}

func openDescriptor(dir *os.File, path string, flags int) (int, error) {
	fd, err := unix.Openat(int(dir.Fd()), path, flags|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: filepath.Join(dir.Name(), path), Err: err}
	}
	return fd, nil
}

// readAt returns the content of a file that has one short line. Hundreds of settings of each interface are read: so it
// makes three system calls, and os.ReadFile would make nine.
func readAt(dir *os.File, path string) (string, error) {
	fd, err := openDescriptor(dir, path, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }() // It was only read.
	var line [128]byte
	size, err := unix.Read(fd, line[:])
	if err != nil {
		return "", &os.PathError{Op: "read", Path: filepath.Join(dir.Name(), path), Err: err}
	}
	return strings.TrimSpace(string(line[:size])), nil
}
