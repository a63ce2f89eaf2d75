// Package importer takes over the addresses that another IPAM plugin has given. It puts the leases into the store of relink-ipam. If the
// network has pools, it also has the agent take these addresses, and no others, of the pools.
package importer
