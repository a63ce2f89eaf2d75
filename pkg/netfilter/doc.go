// Package netfilter keeps chains of iptables in the network namespace of the calling thread. It finds the variant of
// iptables that is in use there, nft or legacy. It compares each chain with what it should be, and writes what differs in one run of
// iptables-restore, so a kill leaves no half of a table.
//
// All calls need a thread that stays in its namespace: runtime.LockOSThread, if it is not the namespace of the process.
package netfilter
