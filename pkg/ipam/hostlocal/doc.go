// Package hostlocal reads host-local's directory of a network, and takes over the addresses that it has given.
package hostlocal
