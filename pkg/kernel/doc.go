// Package kernel reads and changes network interfaces, and is the only package that touches netlink and namespaces.
package kernel
