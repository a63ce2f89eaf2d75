// Package kubenode makes a Kubernetes node of the test machine: a real kubelet, Debian's containerd and runc, and static pods
// with HTTP servers. README.md is its contract.
package kubenode
