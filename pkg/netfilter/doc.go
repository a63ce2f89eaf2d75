// Package netfilter keeps chains of iptables in the network namespace of the calling thread. It finds the variant of
// iptables that is in use there, nft or legacy. It compares a chain with what it should be, and changes only what differs: all of
// a table in one run of iptables-restore, so a kill leaves no half of it.
//
// All calls need a thread that stays in its namespace: runtime.LockOSThread, if it is not the namespace of the process.
package netfilter
