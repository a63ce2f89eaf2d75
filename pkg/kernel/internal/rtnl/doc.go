// Package rtnl sends requests of rtnetlink to the kernel, many in one datagram, and reads the answers.
//
// Socket is a netlink socket, made of a descriptor that was opened in the namespace that is
// meant: this package knows nothing of namespaces. Message is one request. Its bytes are made
// with github.com/vishvananda/netlink/nl, which knows the structures of the kernel, but goes
// through a socket of its own one request at a time. An interface takes ten and more requests.
// Sent one by one, they took twice as long as in one datagram.
//
//   - Socket.Run changes things: the messages go in one datagram, and each failure is returned
//     with what the message was for. Socket.RunAfter sends what depends on the first message only
//     once that has succeeded.
//   - Socket.Dump reads a list, again from the start when the kernel says that it changed
//     meanwhile. Socket.Get reads one object.
//   - Listener hears what the kernel tells unasked, and tells when something of that is lost.
//   - EachAttribute reads the attributes of an answer. No answer makes it panic: one that is cut
//     off, or has a value too short for its type, is ErrMalformed.
//
// The changes of all sockets of the process are sent by one goroutine, one after the other,
// because the kernel takes one at a time anyway.
package rtnl
