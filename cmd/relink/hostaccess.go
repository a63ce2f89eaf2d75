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
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/selection"
)

func newHostAccess() *cobra.Command {
	cmd := newVerb("host-access", nil)
	cmd.AddCommand(newHostAccessShow(), newHostAccessAdd(), newHostAccessRemove())
	cli.RequireVerb(cmd)
	return cmd
}

func newHostAccessShow() *cobra.Command {
	var filter selection.Selection
	var store *checkpoint.Store
	cmd := newVerb("host-access-show", func(cmd *cobra.Command, _ []string) error {
		records, unreadable, err := store.Select(filter)
		if err != nil {
			return err
		}
		report, err := hostends.Inspect(cmd.Context(), store, records, filter.MatchesAll() && len(unreadable) == 0)
		return cli.Show(screenOf(cmd), report, err, report.IsHealthy(), writeHostAccess)
	})
	addSelection(cmd, &filter, &store)
	addParent(cmd, &filter)
	cli.AddOutput(cmd, cli.FormatWide)
	return cmd
}

func writeHostAccess(report hostends.AccessReport, s *cli.Screen) {
	hostAccessTable(report, s)
	if !s.Quiet {
		s.PrintLines(report.Notes)
	}
	s.PrintLines(report.Problems)
	wrong := 0
	for _, p := range report.Pods {
		for _, problem := range p.Problems {
			s.Printf("%s %s: %s", p.Pod, p.Attachment.IfName, problem)
		}
		if len(p.Problems) > 0 {
			wrong++
		}
	}
	s.Info(fmt.Sprintf("%s with host access, %d with a problem. The node speaks to them as %s",
		printable.Count(len(report.Pods), "pod"), wrong, sourceAddresses(report)))
}

// sourceAddresses are the addresses of the node that its pods see.
func sourceAddresses(report hostends.AccessReport) string {
	var used []string
	for _, source := range []netip.Addr{report.Node.Source4, report.Node.Source6} {
		sameFamily := func(a netip.Addr) bool { return a.Is6() == source.Is6() }
		if slices.ContainsFunc(report.Pods, func(p hostends.PodReport) bool { return slices.ContainsFunc(p.Access.Addresses, sameFamily) }) {
			used = append(used, source.String())
		}
	}
	return cmp.Or(strings.Join(used, " and "), report.Node.Source4.String())
}

func hostAccessTable(report hostends.AccessReport, s *cli.Screen) {
	t := cli.NewTable("POD | INTERFACE | IN POD | IN HOST | ADDRESS | SETTINGS:1 | STATE")
	for _, p := range report.Pods {
		state := "works"
		if len(p.Problems) > 0 {
			state = "problem"
		} else if s.Quiet {
			continue
		}
		t.Row(p.Pod.String(), p.Attachment.IfName, p.Access.Name, p.Access.HostName, strings.Join(cli.Strings(p.Access.Addresses), ","), settingsOf(p.Access.Options), state)
	}
	t.Write(s)
}

// settingsOf are the options in the words of the configuration.
func settingsOf(o hostaccess.Options) string {
	var settings []string
	for _, list := range []struct {
		key      string
		prefixes []netip.Prefix
	}{{"services", o.Services}, {"extra", o.Extra}} {
		if len(list.prefixes) > 0 {
			settings = append(settings, list.key+"="+strings.Join(cli.Strings(list.prefixes), ","))
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
	cmd := newVerb("host-access-add", func(cmd *cobra.Command, args []string) error {
		options, errs := written.FlagOptions()
		if len(errs) > 0 {
			return errors.New(printable.Joined(errors.Join(errs...)))
		}
		c.apply = func(ctx context.Context, store *checkpoint.Store, records []checkpoint.Record) (hostends.ChangeReport, error) {
			return hostends.Add(ctx, store, records, *options)
		}
		return c.run(cmd, args)
	})
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
	cmd := newVerb("host-access-remove", c.run)
	c.flags(cmd)
	return cmd
}

func (c *accessChange) flags(cmd *cobra.Command) {
	addSelection(cmd, &c.filter, &c.store)
	addParent(cmd, &c.filter)
	cli.AddOutput(cmd)
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
	changed := newOutcomes(report, "nothing to change", "POD | INTERFACE", func(o change.Outcome) outcome {
		return newOutcome(o, selection.ShortID(o.Attachment.ContainerID), podCell(o.Pod, o.Attachment.ContainerID), o.Attachment.IfName)
	}, hostends.Added, hostends.Removed, hostends.AlreadyPresent, hostends.AlreadyAbsent, hostends.NotNeeded, change.NotTried, change.Failed)
	return changed.present(screenOf(cmd), err)
}
