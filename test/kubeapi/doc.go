// Package kubeapi makes a real Kubernetes API: a kube-apiserver with RBAC on the distribution's etcd. It prepares both programs, their
// keys and their arguments. Tests and benchmarks start them, in a network namespace of their own.
package kubeapi
