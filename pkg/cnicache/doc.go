// Package cnicache reads the caches of libcni and Multus. They tell the network, the container ID and the pod of
// an interface.
package cnicache
