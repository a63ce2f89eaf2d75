// Package udev tells whether the host's device manager is done with a network device: whether it has given the
// device its name and applied its rules (udev(7)).
package udev
