// Package kernel reads and changes the network interfaces of this machine's network namespaces. It
// is the only package of relink that speaks netlink and enters namespaces. It does what it is told,
// and reports what happened: decisions are made elsewhere, on the plain data of package netstate.
//
// # Types
//
// A Namespace is an open network namespace: Open, OpenHost. It has a netlink socket that was opened
// inside it, so that a request needs no change of namespace. Most of what this package does is a
// method of Namespace. What concerns two of them is a function: the parent of a pod's interface is
// in the host's namespace, and the interface itself in the sandbox.
//
//   - Devices, Device, Index and their like read the devices that are there.
//   - Capture reads one interface as a netstate.Interface. An Extent says how much of it: all that a
//     checkpoint remembers (CheckpointExtent), or what a comparison with a checkpoint needs (ExtentOf).
//   - Build makes an interface as a netstate.Interface describes it. Create and Configure are its
//     two halves, for an ADD that asks for the address in between. MoveNIC takes a NIC of the host
//     instead. None of them touches a device of somebody else: whatever follows the creation goes by
//     the index that the kernel answered with.
//     Configure also adds a part of all this to an interface that is there.
//   - SetMAC, AddRoutes, AddAddresses, Enslave and their like change one thing each. CreateVLAN and
//     CreateBond make the parents in the host.
//   - Watch and WatchSandboxes tell which devices have changed, in one namespace or in all sandboxes.
//   - Probe asks the neighbours whether an address is free. An Announcer tells them where it is.
//
// Package identity, below this one, says which network namespace is which. It needs no netlink.
//
// # Netlink
//
// The messages are made with the structures and constants of github.com/vishvananda/netlink, and
// namespaces are entered with github.com/vishvananda/netns. The functions of the former that talk to
// the kernel are not used, for these reasons:
//
//   - They send one request at a time, each with a system call and an answer of its own. A restore
//     of an interface makes about ten requests, and sends all but the first in one datagram
//     (internal/rtnl). It takes less than half of the time, and a kill leaves less half done.
//   - They have no way to ask for an interface with its final name and index in another
//     namespace, or for several requests of which each failure is told.
//   - Their lists can be partial where something changed meanwhile. A list here is read again.
//   - They know fewer attributes than an interface can have. A checkpoint that lacks one would not
//     bring the interface back as it was.
//
// Answers are read by functions that check each length: an answer that is cut off is an error.
//
// The frames of probes and announcements are in internal/wire.
package kernel
