// Package kube asks and tells a Kubernetes API what an agent has to know and to say. With those below it, it is the only package
// that links client-go. Only relink-agent and kubectl-relink link it. Package objects has less of client-go.
//
// A [Recorder] writes events on pods. It asks the API about one pod at a time, just before it writes an event on it. [Owners]
// answers who owns the addresses of a pod, and whether an owner still exists. [Conditions] sets a condition of pods and one of the node.
//
// The agent needs little memory. The only copies of objects are those of the pods on this node, and only of what counts here:
// their identity, their controller, a few labels and annotations, one readiness gate and its condition.
package kube
