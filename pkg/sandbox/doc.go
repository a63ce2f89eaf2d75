// Package sandbox finds the sandboxes on this node from the mounts and the processes, without asking a
// runtime.
package sandbox
