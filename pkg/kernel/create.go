package kernel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

const (
	// highIndex is where the indices of devices under construction begin. It is far from the
	// indices that the kernel gives out, which count up from 1.
	highIndex = 1 << 30
	// temporaryPrefix begins the name of a device under construction.
	temporaryPrefix = "rlnk"
)

// Create makes the link inside sandbox: a device of its kind, with its final name, MAC and MTU,
// down and without addresses. Its parent has that index in parentAt, which is the host's namespace
// or the sandbox itself. The device gets link.Index if that is not 0 and free in the sandbox. If
// the sandbox has a device of that name, Create returns ErrExists. If Create fails, it takes away
// what it began.
//
// It returns the index of the device. Everything else that is done to the device uses this index,
// and is sent only once it is known. The kernel works through a batch to its end: what follows a
// creation that failed would be done to another device, which has the index.
func Create(parentAt, sandbox *Namespace, parentIndex int, link netstate.Link) (index int, err error) {
	create := createOlder
	if parentAt == sandbox || createsInTarget() {
		create = createDirectly
	}
	err = sandbox.withFreeIndex(link, func(link netstate.Link) (err error) {
		index, err = create(parentAt, sandbox, parentIndex, link)
		return err
	})
	return index, err
}

// withFreeIndex calls put, which puts a device into the namespace, and again without the index if that is taken: then any other
// will do. It returns ErrExists if the name is taken.
func (n *Namespace) withFreeIndex(link netstate.Link, put func(netstate.Link) error) error {
	err := put(link)
	if !isTaken(err) {
		return err
	}
	switch exists, lookErr := n.Exists(link.Name); {
	case lookErr != nil:
		return lookErr
	case exists:
		return fmt.Errorf("%s in %s: %w", link.Name, n.Path(), ErrExists)
	case link.Index == 0:
		return err
	}
	link.Index = 0
	return put(link)
}

// isTaken says that the device was not made because another one has its name or its index.
func isTaken(err error) bool { return errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) }

// createsInTarget says whether the kernel makes a device directly in the right namespace if its
// parent is in another one (since 6.15; "net: rtnetlink: Create link directly in target net
// namespace"). Older kernels make it in the namespace of the parent, where the name may be taken,
// and then move it. That takes several RCU grace periods: 20 ms and more instead of 0.1 ms. Tests
// try both ways.
var createsInTarget = sync.OnceValue(func() bool { return kernelAtLeast(6, 15) && !failpoint.OlderKernel() })

// createDirectly asks the sandbox for the device, in one message. The parent may be elsewhere.
func createDirectly(parentAt, sandbox *Namespace, parentIndex int, link netstate.Link) (index int, err error) {
	create := newLink(link, parentIndex, link.Index, link.Name, 0)
	if parentAt != sandbox {
		if err := addParentNSID(create, parentAt, sandbox); err != nil {
			return 0, err
		}
	}
	create.Take = func(payload []byte) error {
		created, err := parseLink(payload)
		if err == nil {
			index = created.Index
		}
		return err
	}
	if err := sandbox.socket.Run(create); err != nil || index != 0 {
		return index, err
	}
	return sandbox.Index(link.Name) // Kernels before 6.2 do not tell it.
}

// addParentNSID adds to a request to the sandbox that the parent is in parentAt.
func addParentNSID(create rtnl.Message, parentAt, sandbox *Namespace) error {
	id, err := sandbox.ensureNSID(parentAt)
	if err != nil {
		return err
	}
	create.Add(uint32Attr(unix.IFLA_LINK_NETNSID, id))
	return nil
}

// createOlder asks the namespace of the parent for a device in the sandbox. The kernel then looks
// for the name and the index in the namespace of the parent too, and refuses what is in use there.
// So the device gets its name afterwards. If the host uses the index, the device is made in the
// host and moved, which takes longer.
func createOlder(parentAt, sandbox *Namespace, parentIndex int, link netstate.Link) (index int, err error) {
	if err := DeleteUnfinished(sandbox); err != nil {
		return 0, err
	}
	if link.Index != 0 {
		_, err := parentAt.linkByIndex(link.Index)
		if err == nil {
			return link.Index, createAndMove(parentAt, sandbox, parentIndex, link)
		}
		if !errors.Is(err, ErrNoDevice) {
			return 0, err
		}
	}
	temporary := temporaryName(highIndex + rand.IntN(highIndex))
	create := newLink(link, parentIndex, link.Index, temporary, 0)
	create.Add(targetNamespace(sandbox))
	if err := parentAt.socket.Run(create); err != nil {
		return 0, err
	}
	if index, err = sandbox.Index(temporary); err == nil {
		err = sandbox.socket.Run(rename(index, link.Name, false))
	}
	if err != nil {
		_ = sandbox.Delete(temporary)
	}
	return index, err
}

// DeleteUnfinished deletes the devices in the sandbox that Create began and, because of a kill, did
// not finish. There are such devices only on kernels where Create takes several steps.
func DeleteUnfinished(sandbox *Namespace) error {
	devices, err := sandbox.Devices()
	for _, d := range devices {
		if Unfinished(d) {
			err = errors.Join(err, sandbox.deleteIndex(d.Index, d.Name))
		}
	}
	return err
}

// createAndMove makes the device in the namespace of the parent, under a name and an index that
// nobody uses, and moves it. Both requests go in one datagram. The kernel works through that
// without a break, so a kill cannot leave only the first done.
func createAndMove(parentAt, sandbox *Namespace, parentIndex int, link netstate.Link) error {
	temporary, err := freeIndex(parentAt)
	if err != nil {
		return err
	}
	create := newLink(link, parentIndex, temporary, temporaryName(temporary), 0)
	outcomes := parentAt.socket.RunEach(create, moveLink(sandbox, temporary, link))
	if err := errors.Join(outcomes...); err == nil || outcomes[0] != nil {
		return outcomes[0]
	}
	discard(parentAt, sandbox, temporary)
	return outcomes[1]
}

// freeIndex returns an index for a device under construction. No device has it: otherwise the
// requests would change that device.
func freeIndex(n *Namespace) (int, error) {
	for {
		index := highIndex + rand.IntN(highIndex)
		if _, err := n.NameOf(index); errors.Is(err, ErrNoDevice) {
			return index, nil
		} else if err != nil {
			return 0, err
		}
	}
}

// discard deletes a device under construction. The kernel moves a device before it renames it. If
// the name was taken in the meantime, the device is already in the sandbox.
func discard(parentAt, sandbox *Namespace, temporary int) {
	_ = parentAt.socket.Run(deleteLink(temporary, temporaryName(temporary)))
	_ = sandbox.Delete(temporaryName(temporary))
}

// temporaryForm matches the names that temporaryName gives to devices under construction.
var temporaryForm = regexp.MustCompile("^" + temporaryPrefix + "[4-7][0-9a-f]{7}$")

// Unfinished says that the device is under construction, or that a kill has left it so. The next
// Create deletes it. The name alone is no proof, because a pod can give it to a device of its own.
// A device under construction also is of a kind that Create makes, and down.
func Unfinished(d netstate.LiveDevice) bool {
	return temporaryForm.MatchString(d.Name) && !d.Up && isCreatable(d.Kind)
}

// IsTemporaryName says that relink gives such a name to an interface for a moment, and to none for good.
func IsTemporaryName(name string) bool { return temporaryForm.MatchString(name) }

func temporaryName(index int) string { return fmt.Sprintf("%s%x", temporaryPrefix, index) }

// newLink returns the request that makes the device with the flags set.
func newLink(link netstate.Link, parentIndex, index int, name string, flags uint32) rtnl.Message {
	m := newDevice(fmt.Sprintf("create %s %s", link.Kind, link.Name), name, index, flags)
	m.Add(uint32Attr(unix.IFLA_LINK, parentIndex))
	if link.MAC != "" && !link.SharesMAC() {
		m.Add(macAttr(link.MAC))
	}
	addFields(m, // With 0, the kernel chooses.
		field{unix.IFLA_MTU, &link.MTU}, field{unix.IFLA_NUM_TX_QUEUES, &link.TxQueues}, field{unix.IFLA_NUM_RX_QUEUES, &link.RxQueues},
		field{unix.IFLA_GROUP, &link.Group}, field{unix.IFLA_TXQLEN, &link.TxQueueLen})
	m.Add(linkInfoAttr(link))
	return m
}

// targetNamespace is the namespace to make the device in, or to move it to.
func targetNamespace(n *Namespace) *nl.RtAttr { return uint32Attr(unix.IFLA_NET_NS_FD, n.fd) }

// moveLink returns the request that moves the device of that index to the sandbox. There it gets
// the name of the link, and its index unless that is 0.
func moveLink(sandbox *Namespace, index int, link netstate.Link) rtnl.Message {
	m := setLink(fmt.Sprintf("move %s to %s", link.Name, sandbox.Path()), index, targetNamespace(sandbox), textAttr(unix.IFLA_IFNAME, link.Name))
	addFields(m, field{unix.IFLA_NEW_IFINDEX, &link.Index})
	return m
}
