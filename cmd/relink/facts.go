package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/netstate"
)

// describeInterface adds everything about an interface, always in the same order.
func (d *description) describeInterface(i netstate.Interface) {
	l := i.Link
	state := "down"
	if l.Up {
		state = "up"
	}
	d.rowf("Interface:", "%s (%s, index %d)", l.Name, linkKind(l), l.Index)
	if l.Macvlan != nil {
		d.list("Options:", l.Macvlan.Words())
	}
	if l.VLANOptions != nil {
		d.list("Options:", l.VLANOptions.Words())
	}
	d.row("Link:", state)
	d.row("MAC:", l.MAC)
	d.rowf("MTU:", "%d", l.MTU)
	if l.TxQueueLen != nil {
		d.rowf("txqueuelen:", "%d", *l.TxQueueLen)
	}
	if l.Group != 0 {
		d.rowf("Group:", "%d", l.Group)
	}
	d.row("Alias:", l.Alias)
	d.row("Flags:", fmt.Sprint(l.LinkFlags))
	parents := texts(i.Parents, describeParent)
	if i.ParentsInSandbox && len(parents) > 0 {
		parents[0] += " in the sandbox"
	}
	d.list("Parents:", parents)
	d.list("Addresses:", texts(i.Addresses, netstate.Address.String))
	d.list("Routes:", texts(i.Routes, netstate.Route.String))
	if i.Master != nil {
		d.rowf("Master:", "%s (%s)", i.Master.Name, i.Master.Kind)
	}
	d.list("Rules:", texts(i.Rules, netstate.Rule.String))
	d.list("Neighbours:", texts(i.Neighbours, netstate.Neighbour.String))
	d.list("Settings:", texts(slices.Sorted(maps.Keys(i.Settings)), func(key string) string { return key + " = " + i.Settings[key] }))
	d.list("Qdiscs:", texts(i.Qdiscs, netstate.Qdisc.String))
	d.list("Not captured:", i.NotCaptured)
}

// additions are what a live interface has besides its record, such as an address. A restore leaves it alone, so it is no difference.
func additions(recorded, live netstate.Interface) (added []string) {
	for _, d := range netstate.Diff(live, recorded) {
		if d.Live == "" { // The record lacks it.
			added = append(added, fmt.Sprintf("%s %s", d.Field, d.Want))
		}
	}
	return added
}

func texts[T any](elements []T, text func(T) string) (list []string) {
	for _, element := range elements {
		list = append(list, text(element))
	}
	return list
}

func linkKind(l netstate.Link) string {
	switch {
	case l.Macvlan != nil:
		return l.Kind + " " + l.Macvlan.Mode
	case l.VLAN != nil:
		return l.VLAN.String()
	case l.IPvlan != nil:
		return l.Kind + " " + l.IPvlan.String()
	case l.NIC != nil:
		return fmt.Sprintf("NIC, permanent MAC %s, bus address %s", l.NIC.PermanentMAC, l.NIC.BusAddress)
	}
	return l.Kind
}

func describeParent(d netstate.Device) string {
	details := []string{d.Kind}
	switch {
	case d.VLAN != nil:
		details[0] = d.VLAN.String()
	case d.Bond != nil:
		details = append(details, d.Bond.Mode, "members")
		for _, m := range d.Bond.Members {
			details[2] += " " + m.Name
		}
	case d.PermanentMAC != "":
		details = append(details, d.PermanentMAC, d.BusAddress)
	}
	return fmt.Sprintf("%s (%s, MTU %d)", d.Name, strings.Join(details, ", "), d.MTU)
}
