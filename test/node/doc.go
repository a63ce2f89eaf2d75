// Package node gives a test a host of its own, with a parent for pods, a checkpoint store and relink's programs.
package node
