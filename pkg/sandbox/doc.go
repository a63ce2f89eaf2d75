// Package sandbox finds the sandboxes on this node from the mounts and the processes, without asking a
// runtime. A survey merges that with what the container runtime tells.
package sandbox
