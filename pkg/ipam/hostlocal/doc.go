// Package hostlocal takes over the addresses that host-local has given: it reads host-local's directory of a network, and has the store of relink-ipam take them in.
package hostlocal
