// Package netstate describes a network interface and the devices below it as plain data.
package netstate
