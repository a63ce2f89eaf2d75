// Package owner has what the Kubernetes API knows of a pod's addresses, as plain data: the owner, the addresses that
// the pod asks for, and whether an owner still exists. Package kube finds it out, in the agent. Plugins and relink ask
// the agent.
package owner
