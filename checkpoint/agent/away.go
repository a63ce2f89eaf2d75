package agent

import (
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// presence says whether somebody has taken an interface away.
type presence int

const (
	// presenceUnknown: nobody can look into the sandbox, or something else explains why the interface is gone or down.
	presenceUnknown presence = iota
	// nicAway: the interface is a NIC, and the sandbox does not have it.
	nicAway
	// present: the interface is there, under any name. It is up if it was recorded as up.
	present
	// away: the interface is gone or down, and its parents are there and up.
	away
)

// presenceOf looks into the sandbox for the interface of the record. sandboxRecords are all records of the sandbox.
//
// Some interfaces go or go down although nobody wanted it. A NIC goes with its driver, and nothing in the host shows
// that. A VLAN device is down while its parent is down. An interface goes with its parent. presenceOf looks at the
// parents last: when a parent goes, Linux first sets the parent down, and then what is on it. So a parent that is still
// up at the end is not the reason.
func presenceOf(host *kernel.Namespace, r checkpoint.Record, sandboxRecords []checkpoint.Record) presence {
	devices, ok := devicesOf(r)
	if !ok {
		return presenceUnknown
	}
	d, exists := deviceOf(r, sandboxRecords, devices)
	switch {
	case exists && (d.Up || !r.Interface.Link.Up):
		return present
	case !exists && r.Interface.Link.Kind == netstate.KindNIC:
		return nicAway
	case r.Interface.ParentsInSandbox:
		return presenceOnSibling(host, r, sandboxRecords, devices)
	case !capture.ParentsUp(host, r.Interface.Parents):
		return presenceUnknown
	}
	return away
}

// presenceOnSibling is for an interface that is gone or down and was on another interface of the sandbox. That one may have
// gone with its own parent.
func presenceOnSibling(host *kernel.Namespace, r checkpoint.Record, sandboxRecords []checkpoint.Record, devices netstate.Devices) presence {
	siblings := slices.DeleteFunc(slices.Clone(sandboxRecords), func(b checkpoint.Record) bool { return b.Attachment == r.Attachment })
	for _, p := range r.Interface.Parents {
		if d, exists := devices.ByName(p.Name); exists && !d.Up {
			return presenceUnknown
		}
		for _, lower := range siblings {
			if lower.Interface.Link.Name == p.Name && presenceOf(host, lower, siblings) <= nicAway {
				return presenceUnknown
			}
		}
	}
	return away
}

// devicesOf returns the devices of the record's sandbox. ok is false if it cannot look at them.
func devicesOf(r checkpoint.Record) (devices netstate.Devices, ok bool) {
	sandbox, err := kernel.OpenSame(r.Namespace)
	if err != nil {
		return nil, false
	}
	defer sandbox.Close()
	devices, err = sandbox.Devices()
	return devices, err == nil
}

// deviceOf returns the device that was recorded. It may have another name now: KubeVirt renames the pod's interface,
// and gives the old name to another device.
func deviceOf(r checkpoint.Record, sandboxRecords []checkpoint.Record, devices netstate.Devices) (netstate.LiveDevice, bool) {
	records := slices.DeleteFunc(slices.Clone(sandboxRecords), func(b checkpoint.Record) bool { return b.Namespace.Same(r.Namespace) != nil })
	matches := checkpoint.Match(records, devices)
	for _, d := range devices {
		if b, ok := matches[d.Index]; ok && b.Attachment == r.Attachment && d.Kind == r.Interface.Link.Kind {
			return d, true
		}
	}
	return netstate.LiveDevice{}, false
}
