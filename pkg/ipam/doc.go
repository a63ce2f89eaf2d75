// Package ipam is the CNI face of relink-ipam: its configuration, its commands, and what they say. The leases themselves are package lease's.
//
// A Call is one invocation. A runtime's comes through Funcs, and an interface plugin in the same process makes its own with New (package
// delegate). A Call reads the configuration once: first its section, "ipam", and then what section, runtimeConfig, args and CNI_ARGS
// come to, a network. That has the ranges as package lease knows them, the policy, the routes, and the addresses that are asked for.
// Examine reads the same for relink validate, and returns everything that is wrong. Keys are the section's keys.
//
// Add and Status read all of this. Check, Del and GC read only the network's name, "store", "dataDir" and the policy, so that a wrong key elsewhere
// keeps no address from being given up. Each opens the lease.Store of its network, and gives the errors of the store their CNI code.
//
// With "pool" the addresses come from pools of the Kubernetes API. The store has what the node was granted of them, and an ADD
// gives only that. It asks a pool.Agent only for what the store does not have.
//
// An ADD is given a Grant. An interface plugin probes for its addresses as Grant.Detection says, and exchanges by Conflict and another Add
// what another host was found to have. Commit ends the ADD, or Del if it fails.
package ipam
