// Package whereabouts reads the IPPools of Whereabouts, as kubectl prints them, and takes over those of their addresses that pods of this
// node have.
package whereabouts
