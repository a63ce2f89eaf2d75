// Package cnicache reads from the caches of libcni and Multus whose an interface is: its network, container ID and pod.
package cnicache
