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
	// highIndex is where the indices of devices under construction begin: far
	// from those that the kernel gives out, which count up from 1.
	highIndex = 1 << 30
	// temporaryPrefix begins the name of a device under construction.
	temporaryPrefix = "rlnk"
)

// Create makes the link inside sandbox: a device of its kind on the parent of
// that index in parentAt (the host's namespace, or the sandbox's own), with its
// final name, MAC and MTU, down and without addresses. A link.Index that is not 0
// is given to the device if it is free in the sandbox. It returns ErrExists when
// the sandbox has a device of that name; what Create began it takes away again
// when it fails.
//
// It returns the device's index. Whatever is to be done to the device goes by that
// one, and is not sent before it is known: the kernel works through a batch to its end,
// and what comes after a Create that failed would be done to whoever has the index.
func Create(parentAt, sandbox *Namespace, parentIndex int, link netstate.Link) (index int, err error) {
	index, err = createOnce(parentAt, sandbox, parentIndex, link)
	if !isTaken(err) {
		return index, err
	}
	switch there, lookErr := sandbox.Exists(link.Name); {
	case lookErr != nil:
		return 0, lookErr
	case there:
		return 0, fmt.Errorf("%s in %s: %w", link.Name, sandbox.Path(), ErrExists)
	case link.Index == 0:
		return 0, err
	}
	link.Index = 0 // It was the index that is taken: any other will do.
	return createOnce(parentAt, sandbox, parentIndex, link)
}

// isTaken says that a device was not made because another one has its name or its index.
func isTaken(err error) bool { return errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY) }

func createOnce(parentAt, sandbox *Namespace, parentIndex int, link netstate.Link) (index int, err error) {
	if parentAt == sandbox || createsInTarget() {
		return createDirectly(parentAt, sandbox, parentIndex, link)
	}
	if err := createOlder(parentAt, sandbox, parentIndex, link); err != nil || link.Index != 0 {
		return link.Index, err
	}
	return sandbox.Index(link.Name)
}

// createsInTarget says whether the kernel makes a device whose parent is in another
// namespace in the right one at once (since 6.15; "net: rtnetlink: Create link
// directly in target net namespace"). Before, it makes it in the parent's, where
// the name may be taken, and moves it, which takes several RCU grace periods: 20 ms
// and more instead of 0.1. Tests try both ways.
var createsInTarget = sync.OnceValue(func() bool { return kernelAtLeast(6, 15) && !failpoint.OlderKernel() })

// createDirectly asks the sandbox for a device on a parent elsewhere or its own, in one
// message.
func createDirectly(parentAt, sandbox *Namespace, parentIndex int, link netstate.Link) (index int, err error) {
	create, err := newLink(link, parentIndex, link.Index, link.Name, 0)
	if err != nil {
		return 0, err
	}
	if parentAt != sandbox {
		if err := linkElsewhere(create, parentAt, sandbox); err != nil {
			return 0, err
		}
	}
	create.Take = func(payload []byte) error {
		made, err := parseLink(payload)
		if err == nil {
			index = made.index
		}
		return err
	}
	if err := sandbox.socket.Run(create); err != nil || index != 0 {
		return index, err
	}
	return sandbox.Index(link.Name) // The kernel tells since 6.2.
}

// linkElsewhere says in a request to the sandbox that the parent is in parentAt.
func linkElsewhere(create rtnl.Message, parentAt, sandbox *Namespace) error {
	id, err := sandbox.assignID(parentAt)
	if err != nil {
		return err
	}
	create.Request.AddData(nl.NewRtAttr(unix.IFLA_LINK_NETNSID, nl.Uint32Attr(uint32(id))))
	return nil
}

// createOlder asks the parent's namespace for a device in the sandbox. The kernel
// then looks for the name and the index in the parent's namespace too, and refuses
// those that are in use there: the name is given afterwards, and a device with an
// index that the host uses is made there and moved, which takes longer.
func createOlder(parentAt, sandbox *Namespace, parentIndex int, link netstate.Link) error {
	if err := DeleteUnfinished(sandbox); err != nil {
		return err
	}
	if link.Index != 0 {
		_, err := parentAt.linkByIndex(link.Index)
		if err == nil {
			return createAndMove(parentAt, sandbox, parentIndex, link)
		}
		if !errors.Is(err, ErrNoDevice) {
			return err
		}
	}
	temporary := temporaryName(highIndex + rand.IntN(highIndex))
	create, err := newLink(link, parentIndex, link.Index, temporary, 0)
	if err != nil {
		return err
	}
	inNamespace(create.Request, sandbox)
	if err := parentAt.socket.Run(create); err != nil {
		return err
	}
	err = sandbox.runOn(temporary, func(index int) (rtnl.Message, error) {
		request := setLink(index, 0, 0)
		request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(link.Name)))
		return rtnl.Message{Request: request, What: "rename " + temporary + " to " + link.Name}, nil
	})
	if err != nil {
		_ = sandbox.Delete(temporary)
	}
	return err
}

// DeleteUnfinished deletes what a kill left of Create in the sandbox, on a kernel where Create
// takes several steps.
func DeleteUnfinished(sandbox *Namespace) error {
	devices, err := sandbox.Devices()
	for _, d := range devices {
		if !Unfinished(d) {
			continue
		}
		if e := sandbox.socket.Run(deleteLink(d.Index, d.Name)); !errors.Is(e, unix.ENODEV) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// createAndMove makes the device in the parent's namespace under a name and index
// that nobody uses, and moves it. Both requests go in one datagram, which the
// kernel works through without a break: no kill can leave the half of it.
func createAndMove(parentAt, sandbox *Namespace, parentIndex int, link netstate.Link) error {
	temporary, err := freeIndex(parentAt)
	if err != nil {
		return err
	}
	create, err := newLink(link, parentIndex, temporary, temporaryName(temporary), 0)
	if err != nil {
		return err
	}
	outcomes := parentAt.socket.RunEach(create, moveLink(sandbox, temporary, link))
	if err := errors.Join(outcomes...); err == nil || outcomes[0] != nil {
		return outcomes[0]
	}
	discard(parentAt, sandbox, temporary)
	return outcomes[1]
}

// freeIndex returns an index for a device under construction, which nobody has: what is
// done by it would be done to them.
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

// discard deletes a device under construction. The kernel moves it before it
// renames it: where the name was taken meanwhile, it is in the sandbox already.
func discard(parentAt, sandbox *Namespace, temporary int) {
	_ = parentAt.socket.Run(deleteLink(temporary, temporaryName(temporary)))
	_ = sandbox.Delete(temporaryName(temporary))
}

// temporaryForm is that of temporaryName for the indices under construction.
var temporaryForm = regexp.MustCompile("^" + temporaryPrefix + "[4-7][0-9a-f]{7}$")

// Unfinished says that the device is one under construction, or what a kill has left of it:
// the next Create sweeps it away. The name alone does not say so: a pod can give it to a
// device of its own. One under construction is of a kind that Create makes, and down.
func Unfinished(d netstate.LiveDevice) bool {
	return temporaryForm.MatchString(d.Name) && !d.Up && creates(d.Kind)
}

func temporaryName(index int) string { return fmt.Sprintf("%s%x", temporaryPrefix, index) }

// newLink returns the request that makes the device, with the flags set.
func newLink(link netstate.Link, parentIndex, index int, name string, flags uint32) (rtnl.Message, error) {
	request := linkRequest(unix.RTM_NEWLINK, index, flags, flags)
	request.Flags |= unix.NLM_F_CREATE | unix.NLM_F_EXCL
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	request.AddData(nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(parentIndex))))
	if link.MAC != "" && !link.SharesMAC() {
		attr, err := macAttr(link.MAC)
		if err != nil {
			return rtnl.Message{}, err
		}
		request.AddData(attr)
	}
	addTxQueueLen(request, link)
	for _, a := range []struct{ attr, value int }{
		{unix.IFLA_MTU, link.MTU}, {unix.IFLA_NUM_TX_QUEUES, link.TxQueues}, {unix.IFLA_NUM_RX_QUEUES, link.RxQueues}, {unix.IFLA_GROUP, int(link.Group)},
	} {
		if a.value != 0 { // Else it is the kernel's choice.
			request.AddData(nl.NewRtAttr(a.attr, nl.Uint32Attr(uint32(a.value))))
		}
	}
	linkInfo, err := linkInfoAttr(link)
	if err != nil {
		return rtnl.Message{}, err
	}
	request.AddData(linkInfo)
	return rtnl.Message{Request: request, What: fmt.Sprintf("create %s %s", link.Kind, link.Name), Advise: missingModule(link.Kind)}, nil
}

// inNamespace adds the namespace that a device is to be made in, or moved to.
func inNamespace(request *nl.NetlinkRequest, n *Namespace) {
	request.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(n.handle))))
}

// moveLink returns the request that moves the device of that index to the sandbox, with
// the name and, where there is one, the index of the link.
func moveLink(sandbox *Namespace, index int, link netstate.Link) rtnl.Message {
	request := setLink(index, 0, 0)
	inNamespace(request, sandbox)
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(link.Name)))
	if link.Index != 0 {
		request.AddData(nl.NewRtAttr(unix.IFLA_NEW_IFINDEX, nl.Uint32Attr(uint32(link.Index))))
	}
	return rtnl.Message{Request: request, What: fmt.Sprintf("move %s to %s", link.Name, sandbox.Path())}
}
