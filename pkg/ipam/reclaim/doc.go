// Package reclaim proves which holders of addresses are gone, from the namespaces, processes and CNI caches of this node, and has these give their addresses up.
package reclaim
