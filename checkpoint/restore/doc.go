// Package restore decides what makes the kernel agree with the checkpoints again, and does it.
package restore
