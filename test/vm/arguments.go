package vm

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

const (
	guestHostname = "relink-vm"
	// Reboots at once on a panic, and turns an oops into one: a kernel that is already broken proves nothing. The check of the timer
	// panics ("IO-APIC + timer doesn't work!", seen on 6.1) if the host is so busy that the emulated timer does not tick in time.
	// The others spare the emulated processor work that no test looks at: pages that are zeroed twice, faults for small pages, checks of
	// each system call, waits for the grace periods of RCU. norandmaps spares most: qemu translates a program's code once for each
	// address that it runs at.
	kernelCommandLine = "console=ttyS0 panic=-1 oops=panic quiet net.ifnames=0 mitigations=off no_timer_check" +
		" norandmaps init_on_alloc=0 transparent_hugepage=always lsm= audit=0 hardened_usercopy=off randomize_kstack_offset=off" +
		" rcupdate.rcu_expedited=1"
)

// processor is all that qemu can emulate, without the kernel's fast ways to copy and to clear a page (erms, fsrm): they take a byte at
// a time, and the emulated processor needs as long for a byte as for eight.
const processor = "max,-erms,-fsrm"

// nics are the machine's NICs in the order of their bus addresses, all on one hub. romfile= skips their boot ROMs.
var nics = []string{
	"e1000e,netdev=wire0,mac=52:54:00:00:00:01,addr=0x02,romfile=",
	"e1000e,netdev=wire1,mac=52:54:00:00:00:02,addr=0x03,romfile=",
	"virtio-net-pci,netdev=wire2,mac=52:54:00:00:00:10,addr=0x04,romfile=",
	"virtio-net-pci,netdev=wire3,mac=52:54:00:00:00:11,addr=0x05,romfile=",
}

// sriovNIC is a NIC with VFs (qemu 8.0). Only a PCI Express port has what it needs.
const sriovNIC = "igb,bus=express,netdev=sriov,mac=52:54:00:00:00:20,romfile="

// arguments returns qemu's command line. It expects the output and the console on descriptors 3 and 4.
func (m *machine) arguments() []string {
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-M", "q35", "-cpu", processor, "-smp", strconv.Itoa(m.cfg.Processors), "-m", strconv.Itoa(m.cfg.MemoryMiB),
		"-accel", accelerator(os.Getenv("RELINK_VM_ACCEL")),
		"-kernel", m.image.kernel,
		"-initrd", m.image.initramfs,
		"-append", kernelCommandLine + " relink.work=" + m.work,
		"-chardev", "file,id=console,path=/dev/fd/4", "-serial", "chardev:console",
		"-device", "virtio-serial-pci,max_ports=2",
		"-chardev", "file,id=output,path=/dev/fd/3", "-device", "virtserialport,chardev=output,nr=1,name=output",
	}
	for i, nic := range nics {
		args = append(args, "-netdev", fmt.Sprintf("hubport,id=wire%d,hubid=0", i), "-device", nic)
	}
	if m.cfg.SRIOV {
		args = append(args, "-netdev", "hubport,id=sriov,hubid=0", "-device", "pcie-root-port,id=express,chassis=1,addr=0x10", "-device", sriovNIC)
	}
	// multidevs=remap: inode numbers stay unique although the host's root has several file systems below it.
	args = append(args, "-virtfs", virtfs("root", "/")+",readonly=on,multidevs=remap")
	args = append(args, "-virtfs", virtfs("share", m.cfg.Share)+",multidevs=remap")
	for i, directory := range m.cfg.Writable {
		args = append(args, "-virtfs", virtfs("writable"+strconv.Itoa(i), directory)+",multidevs=remap")
	}
	return args
}

// virtfs describes a host directory to qemu, where a comma is written twice.
func virtfs(tag, path string) string {
	return fmt.Sprintf("local,mount_tag=%s,path=%s,security_model=none", tag, strings.ReplaceAll(path, ",", ",,"))
}

// accelerator turns the setting RELINK_VM_ACCEL into qemu's -accel. Emulation is the default: it works everywhere, while
// kvm can hang on a host that is itself a guest.
func accelerator(setting string) string {
	if setting == "" || setting == "tcg" {
		return "tcg,thread=multi"
	}
	return setting
}
