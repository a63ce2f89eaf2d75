// Package adopt writes checkpoints of interfaces that run without one, whoever attached them, and renews those that are there.
package adopt
