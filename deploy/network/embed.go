// Package network has the files by which network managers leave the host's ends of host access alone, for the command that installs them.
package network

import _ "embed"

// Networkd is for systemd-networkd, and NetworkManager for NetworkManager.
var (
	//go:embed 00-relink.network
	Networkd []byte
	//go:embed relink.conf
	NetworkManager []byte
)
