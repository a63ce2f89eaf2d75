// Package flock takes flock(2) locks on open files, with a limit to the wait, and says who holds them.
package flock
