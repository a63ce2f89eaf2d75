// Package metrics shows relink-agent to Prometheus. [Metrics] observes the agent: it counts and measures what
// happens. When somebody asks, the present state comes from the agent's Status and Figures, and from the stores of
// relink-ipam. [ControllerHandler] shows the process that keeps address pools as a whole.
//
// The number of series is bounded. The label base has the names of the NICs and bonds that the node's pods are on. The
// labels network, ranges and pool have values from the configurations of relink-ipam. No label has the name of a pod, an
// address, or the text of a reason.
package metrics
