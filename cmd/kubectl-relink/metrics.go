package main

import (
	"bufio"
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/relink-cni/relink/pkg/printable"
)

// figures are what an agent's page of metrics says of its node.
type figures struct {
	Version string `json:"version,omitempty"`
	// Attachments has the number of interfaces in each state: whole, lost, drifted, sandbox_gone.
	Attachments map[string]int `json:"attachments"`
	// Bases has the state of each NIC or bond that is not whole.
	Bases map[string]string `json:"bases,omitempty"`
	// Unreadable is the number of checkpoints that cannot be read, Owed that of interfaces whose neighbours were not told yet.
	Unreadable int  `json:"unreadable,omitempty"`
	Owed       int  `json:"owed,omitempty"`
	Paused     bool `json:"paused,omitempty"`
}

// The states of interfaces on the page.
const (
	lost    = "lost"
	drifted = "drifted"
)

// parseFigures reads a page in the text format of Prometheus. ok is false if the page is not of an agent.
func parseFigures(page []byte) (f figures, ok bool) {
	f = figures{Attachments: map[string]int{}, Bases: map[string]string{}}
	for lines := bufio.NewScanner(bytes.NewReader(page)); lines.Scan(); {
		name, labels, value := parseSample(lines.Text())
		switch name {
		case "relink_agent_build_info":
			f.Version, ok = labels["version"], true
		case "relink_attachments":
			f.Attachments[labels["state"]] = int(value)
		case "relink_base_state":
			if state := labels["state"]; value == 1 && state != "whole" {
				f.Bases[labels["base"]] = strings.ReplaceAll(state, "_", " ")
			}
		case "relink_checkpoints_unreadable":
			f.Unreadable = int(value)
		case "relink_announcements_owed":
			f.Owed = int(value)
		case "relink_agent_paused":
			f.Paused = value == 1
		}
	}
	return f, ok
}

// sample is a line such as NAME{KEY="VALUE",KEY="VALUE"} 1, and label one of its labels.
var (
	sample = regexp.MustCompile(`^(\w+)(?:{(.*)})? (\S+)$`)
	label  = regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*")`)
)

// parseSample reads a sample. Any other line has no name.
func parseSample(line string) (name string, labels map[string]string, value float64) {
	parts := sample.FindStringSubmatch(line)
	if parts == nil {
		return "", nil, 0
	}
	labels = map[string]string{}
	for _, pair := range label.FindAllStringSubmatch(parts[2], -1) {
		labels[pair[1]], _ = strconv.Unquote(pair[2])
	}
	value, _ = strconv.ParseFloat(parts[3], 64)
	return parts[1], labels, value
}

// reasons say what is not as usual on the node.
func (f figures) reasons() (reasons []string) {
	for _, base := range slices.Sorted(maps.Keys(f.Bases)) {
		reasons = append(reasons, base+" is "+f.Bases[base])
	}
	if f.Unreadable > 0 {
		reasons = append(reasons, printable.Count(f.Unreadable, "checkpoint")+" cannot be read")
	}
	if f.Owed > 0 {
		reasons = append(reasons, "neighbours are not told yet of "+printable.Count(f.Owed, "interface"))
	}
	if f.Paused {
		reasons = append(reasons, "the agent is paused")
	}
	return reasons
}
