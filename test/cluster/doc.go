// Package cluster shows what relink does with a Kubernetes API: a real kube-apiserver with RBAC, on the distribution's etcd. It has
// no kubelet and no scheduler: pods are objects of the API, and their interfaces are in namespaces of the test.
package cluster
