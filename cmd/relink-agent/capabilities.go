package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/relink-cni/relink/pkg/kernel"
)

// capability is a right of a process, and the reason why the agent needs it.
type capability struct {
	name   string
	bit    uint // its number in linux/capability.h
	reason string
}

// requiredCapabilities are the capabilities that the agent cannot work without. The unit and the DaemonSet in deploy/ give exactly
// these.
var requiredCapabilities = []capability{
	{"CAP_SYS_ADMIN", 21, "to enter the network namespaces of pods (setns)"},
	{"CAP_NET_ADMIN", 12, "to make interfaces, addresses and routes"},
	{"CAP_NET_RAW", 13, "to tell the neighbours where a restored address is, and to probe gateways"},
	{"CAP_NET_BROADCAST", 11, "to hear of changes in the network namespaces of pods"},
}

// checkPermissions returns a line for each needed right that this process does not have.
func checkPermissions() ([]string, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, fmt.Errorf("read this process's capabilities: %w", err)
	}
	granted, err := effectiveCapabilities(string(status))
	if err != nil {
		return nil, err
	}
	problems := missingCapabilities(granted)
	if os.Geteuid() != 0 {
		problems = append(problems, fmt.Sprintf("the agent runs as user %d: run it as root, because root owns the checkpoints", os.Geteuid()))
	}
	if err := kernel.SettingsWritable(); err != nil {
		problems = append(problems, err.Error())
	}
	return problems, nil
}

// missingCapabilities returns a line for each needed capability that is not in the set.
func missingCapabilities(granted uint64) []string {
	var lines []string
	for _, c := range requiredCapabilities {
		if granted&(1<<c.bit) == 0 {
			lines = append(lines, fmt.Sprintf("%s is missing: the agent needs it %s. Add %s to CapabilityBoundingSet= of the systemd unit, "+
				"or %s to securityContext.capabilities.add of the DaemonSet", c.name, c.reason, c.name, strings.TrimPrefix(c.name, "CAP_")))
		}
	}
	return lines
}

// effectiveCapabilities reads the effective capabilities from the text of /proc/self/status.
func effectiveCapabilities(status string) (uint64, error) {
	_, text, _ := strings.Cut(status, "\nCapEff:")
	digits, _, _ := strings.Cut(text, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("read this process's capabilities: CapEff of /proc/self/status: %w", err)
	}
	return set, nil
}
