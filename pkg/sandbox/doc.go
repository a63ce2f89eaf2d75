// Package sandbox finds the sandboxes on this node from the mounts and the processes, without asking a
// runtime, and proves which are gone.
package sandbox
