package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/hostends"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/selection"
)

func newHostAccess() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "host-access",
		Short: "The path between pods and this node",
		Long: `The path between macvlan or ipvlan pods and this node: a veth pair beside the pod's interface. The
key "hostAccess" of a network's configuration gives it to new pods (docs/host-access.md). These
verbs show it, and give it to pods that run.

Exit status: each verb has its own.`,
		Example: `  relink host-access show
  relink host-access add shop/web-0`,
	}
	cmd.AddCommand(newHostAccessShow(), newHostAccessAdd(), newHostAccessRemove())
	requireVerb(cmd)
	return cmd
}

func newHostAccessShow() *cobra.Command {
	var filter selection.Selection
	var store *checkpoint.Store
	cmd := &cobra.Command{
		Use:   "show " + nameUsage,
		Short: "Show which pods have host access, and whether it works",
		Long: `Show which pods have host access. Compare it with the checkpoints, and try it: the node asks each
pod, and each pod asks the node. It changes nothing.

` + namingHelp + `

Exit status 0: all of it works; 1: something does not, and the output names it; 2: usage or
environment.`,
		Example: `  relink host-access show
  relink host-access show shop/web-0`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			records, unreadable, err := store.Select(filter)
			if err != nil {
				return err
			}
			report, err := hostends.Inspect(cmd.Context(), store, records, filter.MatchesAll() && len(unreadable) == 0)
			if err != nil {
				return err
			}
			s := screenOf(cmd)
			return s.present(report, report.IsHealthy(), func() { writeHostAccess(report, s) })
		},
	}
	addSelection(cmd, &filter, &store)
	addParent(cmd, &filter)
	addOutput(cmd, formatWide)
	return cmd
}

func writeHostAccess(report hostends.AccessReport, s *screen) {
	hostAccessTable(report, s)
	if !s.quiet {
		s.printLines(report.Notes)
	}
	s.printLines(report.Problems)
	wrong := 0
	for _, p := range report.Pods {
		for _, problem := range p.Problems {
			s.printf("%s %s: %s", p.Pod, p.Attachment.IfName, problem)
		}
		if len(p.Problems) > 0 {
			wrong++
		}
	}
	s.info(fmt.Sprintf("%s with host access, %d with a problem. The node speaks to them as %s",
		printable.Count(len(report.Pods), "pod"), wrong, sourceAddresses(report)))
}

// sourceAddresses are the addresses of the node that its pods see.
func sourceAddresses(report hostends.AccessReport) string {
	var used []string
	for _, source := range []netip.Addr{report.Node.Source4, report.Node.Source6} {
		for _, p := range report.Pods {
			if len(used) == 0 || used[len(used)-1] != source.String() {
				if hasFamily(p.Access.Addresses, source.Is6()) {
					used = append(used, source.String())
				}
			}
		}
	}
	if len(used) == 0 {
		return report.Node.Source4.String()
	}
	return strings.Join(used, " and ")
}

func hasFamily(addresses []netip.Addr, ipv6 bool) bool {
	return slices.ContainsFunc(addresses, func(a netip.Addr) bool { return a.Is6() == ipv6 })
}

func hostAccessTable(report hostends.AccessReport, s *screen) {
	t := newTable("POD | INTERFACE | IN POD | IN HOST | ADDRESS | SETTINGS:1 | STATE")
	for _, p := range report.Pods {
		state := "works"
		if len(p.Problems) > 0 {
			state = "problem"
		} else if s.quiet {
			continue
		}
		t.row(p.Pod.String(), p.Attachment.IfName, p.Access.Name, p.Access.HostName, strings.Join(texts(p.Access.Addresses, netip.Addr.String), ","), settingsOf(p.Access.Options), state)
	}
	t.write(s)
}

// settingsOf are the options in the words of the configuration.
func settingsOf(o hostaccess.Options) string {
	var settings []string
	for _, list := range []struct {
		key      string
		prefixes []netip.Prefix
	}{{"services", o.Services}, {"extra", o.Extra}} {
		if len(list.prefixes) > 0 {
			settings = append(settings, list.key+"="+strings.Join(texts(list.prefixes, netip.Prefix.String), ","))
		}
	}
	if o.PreserveSource {
		settings = append(settings, fmt.Sprintf("preserveSource (%#x)", o.Mark))
	}
	if o.Masquerade {
		settings = append(settings, "masquerade")
	}
	return cmp.Or(strings.Join(settings, " "), "-")
}

// accessChange is add or remove.
type accessChange struct {
	filter selection.Selection
	store  *checkpoint.Store
	apply  func(context.Context, *checkpoint.Store, []checkpoint.Record) (hostends.ChangeReport, error)
}

func newHostAccessAdd() *cobra.Command {
	var c accessChange
	var written netconf.AccessConfig
	cmd := &cobra.Command{
		Use:   "add POD...",
		Short: "Give host access to pods that run",
		Long: `Give host access to pods that run. No container restarts, and the pod's own interface stays as it
is. The flags are the keys of "hostAccess" in a network's configuration. A pod with several
interfaces gets it beside the one with its default route.

` + namingHelp + `

Exit status 0: all named pods have it; 1: one has not, and the output names it; 2: usage or
environment.`,
		Example: `  relink host-access add shop/web-0
  relink host-access add -n shop --services 10.96.0.0/12 --extra 169.254.20.10`,
		RunE: func(cmd *cobra.Command, args []string) error {
			options, errs := written.FlagOptions()
			if len(errs) > 0 {
				return errors.New(printable.Joined(errors.Join(errs...)))
			}
			c.apply = func(ctx context.Context, store *checkpoint.Store, records []checkpoint.Record) (hostends.ChangeReport, error) {
				return hostends.Add(ctx, store, records, *options)
			}
			return c.run(cmd, args)
		},
	}
	c.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&written.IfName, "if-name", hostaccess.DefaultName, "`name` of the device in the pod")
	flags.StringSliceVar(&written.Services, "services", nil, "`networks` of ClusterIPs that the pod reaches through the node")
	flags.StringSliceVar(&written.Extra, "extra", nil, "other `networks` or addresses that it reaches through the node")
	flags.BoolVar(&written.PreserveSource, "preserve-source", false, "send answers to what came through the node back through it")
	flags.StringVar((*string)(&written.Mark), "mark", "", "one `bit` of the mark for --preserve-source (default 0x10000000)")
	flags.BoolVar(&written.Masquerade, "masquerade", false, "give what the pod sends through the node an address of the node")
	return cmd
}

func newHostAccessRemove() *cobra.Command {
	c := accessChange{apply: hostends.Remove}
	cmd := &cobra.Command{
		Use:   "remove POD...",
		Short: "Take host access from pods that run",
		Long: `Take host access from pods that run. Their probes fail afterwards, if nothing else lets the node
reach them.

` + namingHelp + `

Exit status 0: none of the named pods has it; 1: one has, and the output names it; 2: usage or
environment.`,
		Example: "  relink host-access remove shop/web-0",
		RunE:    c.run,
	}
	c.flags(cmd)
	return cmd
}

func (c *accessChange) flags(cmd *cobra.Command) {
	addSelection(cmd, &c.filter, &c.store)
	addParent(cmd, &c.filter)
	addOutput(cmd)
}

func (c *accessChange) run(cmd *cobra.Command, _ []string) error {
	if c.filter.MatchesAll() {
		return errors.New("name the pods, or select them by --namespace, --network or --parent")
	}
	records, unreadable, err := c.store.Select(c.filter)
	if err != nil {
		return err
	}
	report, err := c.apply(cmd.Context(), c.store, records)
	for _, u := range unreadable {
		report.Outcomes = append(report.Outcomes, change.Unreadable(u))
	}
	changed := newOutcomes(report, "nothing to change", "POD | INTERFACE", func(o change.Outcome) (string, []string) {
		return selection.ShortID(o.Attachment.ContainerID), []string{podCell(o.Pod, o.Attachment.ContainerID), o.Attachment.IfName}
	}, hostends.Added, hostends.Removed, hostends.AlreadyPresent, hostends.AlreadyAbsent, hostends.NotNeeded, change.NotTried, change.Failed)
	return changed.present(screenOf(cmd), err)
}
