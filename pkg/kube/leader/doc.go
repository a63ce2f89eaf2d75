// Package leader lets one of several processes work at a time, by a Lease of the Kubernetes API. client-go's elector links the clients of
// all kinds of Kubernetes, which are 9 MB. So this package is apart from package kube: who only reads and writes some objects does not
// link them.
package leader
