// Package sandbox finds the sandboxes on this node without asking a runtime: from the mounts and from the processes.
package sandbox
