// Package node is a host of a test's own, with a parent for pods, a checkpoint store and relink's programs.
package node
