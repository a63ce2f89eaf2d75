package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/netstate"
)

// describeInterface adds everything about an interface, always in the same order.
func describeInterface(i netstate.Interface, d *cli.Description) {
	l := i.Link
	state := "down"
	if l.Up {
		state = "up"
	}
	d.Addf("Interface:", "%s (%s, index %d)", l.Name, linkKind(l), l.Index)
	if l.Macvlan != nil {
		d.AddList("Options:", l.Macvlan.Words())
	}
	if l.VLANOptions != nil {
		d.AddList("Options:", l.VLANOptions.Words())
	}
	d.Add("Link:", state, "MAC:", l.MAC, "MTU:", fmt.Sprint(l.MTU))
	if l.TxQueueLen != nil {
		d.Addf("txqueuelen:", "%d", *l.TxQueueLen)
	}
	if l.Group != 0 {
		d.Addf("Group:", "%d", l.Group)
	}
	d.Add("Alias:", l.Alias, "Flags:", fmt.Sprint(l.LinkFlags))
	parents := cli.Texts(i.Parents, describeParent)
	if i.ParentsInSandbox && len(parents) > 0 {
		parents[0] += " in the sandbox"
	}
	d.AddList("Parents:", parents)
	d.AddList("Addresses:", cli.Strings(i.Addresses))
	d.AddList("Routes:", cli.Strings(i.Routes))
	if i.Master != nil {
		d.Addf("Master:", "%s (%s)", i.Master.Name, i.Master.Kind)
	}
	d.AddList("Rules:", cli.Strings(i.Rules))
	d.AddList("Neighbours:", cli.Strings(i.Neighbours))
	d.AddList("Settings:", cli.Texts(slices.Sorted(maps.Keys(i.Settings)), func(key string) string { return key + " = " + i.Settings[key] }))
	d.AddList("Qdiscs:", cli.Strings(i.Qdiscs))
	d.AddList("Not captured:", i.NotCaptured)
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
