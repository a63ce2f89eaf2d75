package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

func newShow(open storeOpener, v *verbosity) *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show what is remembered of a sandbox",
		Long:  "Show what is remembered of a sandbox, by its container ID, a prefix of it, or the pod's namespace/name.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := open()
			if err != nil {
				return err
			}
			return show(store, selection.Selection{Names: args}, output, screenOf(cmd, v))
		},
	}
	addOutput(cmd, &output)
	return cmd
}

func show(store *checkpoint.Store, by selection.Selection, output format, s *screen) error {
	records, unreadable, err := store.Select(by)
	if err != nil {
		return err
	}
	if output.isData() {
		err = output.write(s.out, orEmpty(records))
	} else {
		for _, r := range records {
			describe(r, s)
		}
	}
	if err != nil {
		return err
	}
	return sayUnreadable(s, unreadable)
}

// describe writes a record in the manner of kubectl describe.
func describe(r checkpoint.Record, s *screen) {
	var d description
	d.row("Pod:", "%s", r.Pod)
	d.row("Sandbox:", "%s", r.Attachment.ContainerID)
	d.row("Network:", "%s", r.Attachment.Network)
	d.row("Namespace:", "%s (inode %d, cookie %d)", r.Namespace.Path, r.Namespace.Inode, r.Namespace.Cookie)
	d.row("Captured:", "%s by %s", r.CapturedAt.Local().Format("2006-01-02 15:04:05 MST"), r.Writer)
	link := r.Interface.Link
	d.row("Interface:", "%s (%s, index %d)", link.Name, linkKind(link), link.Index)
	d.row("MAC:", "%s", link.MAC)
	d.row("MTU:", "%d", link.MTU)
	for i, p := range r.Interface.Parents {
		d.row(first(i, "Parents:"), "%s", describeParent(p))
	}
	for i, a := range r.Interface.Addresses {
		d.row(first(i, "Addresses:"), "%s", a)
	}
	for i, route := range r.Interface.Routes {
		d.row(first(i, "Routes:"), "%s", route)
	}
	describeRest(r.Interface, d.row)
	d.write(s)
}

// describeRest writes what few interfaces have.
func describeRest(i netstate.Interface, row func(name, format string, args ...any)) {
	if i.Master != nil {
		row("Master:", "%s (%s)", i.Master.Name, i.Master.Kind)
	}
	for n, o := range i.RouteOrder {
		row(first(n, "Route order:"), "%s", o)
	}
	for n, r := range i.Rules {
		row(first(n, "Rules:"), "%s", r)
	}
	for n, neighbour := range i.Neighbours {
		row(first(n, "Neighbours:"), "%s", neighbour)
	}
	for n, key := range slices.Sorted(maps.Keys(i.Settings)) {
		row(first(n, "Settings:"), "%s = %s", key, i.Settings[key])
	}
	for n, q := range i.Qdiscs {
		row(first(n, "Qdiscs:"), "%s", q)
	}
	for n, what := range i.NotCaptured {
		row(first(n, "Not captured:"), "%s", what)
	}
}

func first(i int, name string) string {
	if i == 0 {
		return name
	}
	return ""
}

func linkKind(l netstate.Link) string {
	switch {
	case l.Macvlan != nil:
		return l.Kind + " " + l.Macvlan.Mode
	case l.VLAN != nil:
		return l.VLAN.String()
	case l.IPvlan != nil:
		return l.Kind + " " + l.IPvlan.Mode
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
		var members []string
		for _, m := range d.Bond.Members {
			members = append(members, m.Name)
		}
		details = append(details, d.Bond.Mode, "members "+strings.Join(members, " "))
	case d.PermanentMAC != "":
		details = append(details, d.PermanentMAC, d.BusAddress)
	}
	return fmt.Sprintf("%s (%s, MTU %d)", d.Name, strings.Join(details, ", "), d.MTU)
}
