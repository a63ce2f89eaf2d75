// Package delegate calls the IPAM plugin that a configuration names. It calls relink's own plugin in this
// process, and executes any other one as the CNI specification says.
package delegate
