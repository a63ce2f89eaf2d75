// Package services shows what a pod with hostAccess reaches, and who reaches it: by Services of a real kube-proxy, by the node's
// own addresses, and by node-local DNS. The node, a second node, a router and a client outside are network namespaces. relink-macvlan
// attaches the pods, and relink restore does what the agent would do.
//
// docs/host-access.md has Table and ConditionTable.
package services
