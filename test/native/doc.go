// Package native runs tests on a host of their own without a machine: in namespaces with a root file system, a wire with two NICs, and a
// real systemd as process 1. It starts in a second and takes no time of an emulator. What needs a driver, a bond or a VLAN of another kernel
// runs in the test machine, package vm.
package native
