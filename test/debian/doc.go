// Package debian installs, upgrades, removes and purges the Debian package with dpkg, under a real systemd in the test
// machine.
package debian
