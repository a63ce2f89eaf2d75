// Package hostaccess makes the path between a pod and its own node. A macvlan or ipvlan interface reaches everybody but the
// node, so a veth pair beside it does: one end in the pod, one in the host.
//
//   - An Access says what one pod has. It is plain data, and a part of the pod's checkpoint.
//   - A Node says which addresses the node has now, and which of them is the source of what the node sends to pods.
//   - Build makes an Access. Inspect compares the sandbox's part with what it should be, and Repair mends it. Remove takes it away.
//   - Claim makes the host's part for a new pod, and looks at no other one: the routes to it, the policy rules that lead to these
//     routes, and the node's stand-in address. PlanHost says what all pods lack there, and HostPlan.Run makes it right. RemoveShared takes
//     away what all share.
//   - The rules of iptables, for the few settings that need them, are in filter.go. Those in the host are the same for all pods.
//
// What is to be there is decided by pure functions (desired.go, host.go). The pod's addresses are on its end of the pair, too. So
// the node reaches them while the NIC, and with it the macvlan, is away.
package hostaccess
