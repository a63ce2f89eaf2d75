// Package udev tells whether the host's device manager is done with a network device: gave
// it its name and set it up as its rules say (udev(7)).
package udev
