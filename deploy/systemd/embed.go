// Package systemd has the unit of relink-agent, for the command that installs it.
package systemd

import _ "embed"

// Unit is the file relink-agent.service. It runs /usr/local/sbin/relink-agent.
//
//go:embed relink-agent.service
var Unit []byte
