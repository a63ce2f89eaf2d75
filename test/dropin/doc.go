// Package dropin runs relink-ipam beside host-local, and executed beside called in the process, to see the same come of it.
package dropin
