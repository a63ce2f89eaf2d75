// Package cri asks the container runtime (containerd, CRI-O) for its sandboxes, by the Kubernetes Container Runtime
// Interface (CRI), version v1. Only relink-agent links it.
package cri
