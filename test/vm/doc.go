// Package vm is the test machine: it boots a stock Debian kernel with real NIC drivers under qemu and runs a command,
// or the calling test binary itself, as root on top of the host's file system.
package vm
