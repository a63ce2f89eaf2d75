// Package hostlocal takes over the addresses that host-local has given. It reads host-local's directory of a
// network, and puts the leases into the store of relink-ipam.
package hostlocal
