// Package reclaim proves which holders of addresses are gone, and has these give up their addresses. The proof
// comes from the namespaces, processes and CNI caches of this node.
package reclaim
