// Package metrics shows relink-agent to Prometheus. [Metrics] is the agent's Observer: it counts and measures what happens. What
// is at the moment comes from the agent's Status and Figures, and from the stores of relink-ipam, when somebody asks.
//
// The number of series is bounded. The label base has the names of the node's NICs and bonds below pods, and the labels
// network and ranges have what the configurations of relink-ipam have. No label has the name of a pod, an address or a text of a
// reason.
package metrics
