// Package delegate calls the IPAM plugin that a configuration names: relink's own in this process, any other as the specification says.
package delegate
