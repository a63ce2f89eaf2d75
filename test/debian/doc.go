// Package debian installs, upgrades, removes and purges the Debian package with dpkg, under a real systemd on a host of its own.
package debian
