// Package identity tells one network namespace from another. It needs no netlink, so that programs
// which only compare namespaces do not link package kernel.
//
// The kernel gives the inode number of a namespace's file to the next one as soon as it is free. An
// attachment.Namespace has the namespace's cookie as well, which no other namespace gets until the
// next boot, and the ID of the boot.
//
// Open and Read look at a path: a bind mount of a runtime, or /proc/PID/ns/net. SocketNamespace looks at an
// open file of a process, which keeps its namespace alive even where no path leads to it.
package identity
