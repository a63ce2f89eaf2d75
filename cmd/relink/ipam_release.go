package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/selection"
)

func newIPAMRelease(dir *leaseDir, v *verbosity) *cobra.Command {
	var output format
	var network string
	var from expectation
	cmd := &cobra.Command{
		Use:   "release ADDRESS {[NAMESPACE/]POD|ID|--nobody}",
		Short: "Make an address free that its holder does not need any more",
		Long: `Make an address free: a held address goes into quarantine as after a DEL, and a reservation or a
quarantine ends. Name the holder: the pod or the container ID that holds the address, the
beginning of that ID, or the pod for which the address is reserved. If another one has it by
now, nothing is released. --nobody is for an address in quarantine, or one that is reserved for
nobody.

relink does not look whether the holder is alive: relink ipam show says who it is.

Exit status 0: it was released; 1: it is free, or another one has it, and a message says so;
2: usage or environment.`,
		Example: `  relink ipam release 10.3.0.5 shop/web-0
  relink ipam release 10.3.0.5 4f1c2ab0d6e91 --ifname net1
  relink ipam release 10.3.0.7 --nobody --network lan   # end a quarantine`,
		Args:              releaseArgs(&from),
		ValidArgsFunction: eachCompletes(dir.completesLeases(addressesOf), dir.completesHolder),
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := parseAddress(args[0])
			if err != nil {
				return err
			}
			if err := from.check(); err != nil {
				return err
			}
			s := screenOf(cmd, v)
			store, err := dir.storeOf(cmd.Context(), address, network, s)
			if err != nil {
				return err
			}
			return release(cmd.Context(), store, address, from, output, s)
		},
	}
	addNetwork(cmd, dir, &network, "the `network` of the address (default the one that has a lease of it)")
	flags := cmd.Flags()
	flags.StringVarP(&from.namespace, "namespace", "n", "", "the `namespace` of the pod")
	completeLeaseNamespaces(cmd, dir)
	flags.StringVar(&from.ifName, "ifname", "", "the `interface` of the holder, if it holds the address by several")
	must(cmd.RegisterFlagCompletionFunc("ifname", dir.completesLeases(func(h holding) []string { return []string{h.holder.IfName} })))
	flags.BoolVar(&from.nobody, "nobody", false, "nobody holds it: it is in quarantine, or reserved for nobody")
	addOutput(cmd, &output)
	return cmd
}

// expectation is the holder that the command line names.
type expectation struct {
	// name is a pod's name or the beginning of a container ID.
	name, namespace, ifName string
	nobody                  bool
}

// releaseArgs takes ADDRESS and HOLDER.
func releaseArgs(from *expectation) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < 2 {
			return takes("ADDRESS")(cmd, args)
		}
		from.name = args[1]
		return takes("ADDRESS", "the holder")(cmd, args)
	}
}

// check reports a command line that names no holder, or two.
func (e expectation) check() error {
	switch {
	case e.nobody && e.name != "":
		return fmt.Errorf("--nobody contradicts the holder %q: give one of them", e.name)
	case e.nobody && e.ifName != "":
		return fmt.Errorf("--ifname %s contradicts --nobody: give one of them", e.ifName)
	case e.nobody && e.namespace != "":
		return fmt.Errorf("--namespace %s contradicts --nobody: give one of them", e.namespace)
	case e.nobody:
		return nil
	case e.name == "":
		return errors.New("the holder is missing: name its pod or its container ID, or give --nobody if nobody holds the address; relink ipam show ADDRESS says who does")
	}
	return e.selection().Validate()
}

func (e expectation) selection() selection.Selection {
	return selection.Selection{Names: []string{e.name}, Namespace: e.namespace, Lister: ipamList}
}

// storeOf returns the store of the network. If no network is named, it returns the store of the only network with a
// lease of the address. If no store has one, storeOf reports that and returns errDiffers.
func (d leaseDir) storeOf(ctx context.Context, address netip.Addr, network string, s *screen) (*lease.Store, error) {
	if network != "" {
		return d.openThere(network)
	}
	networks, err := d.networks("")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, n := range networks {
		store, err := d.open(n)
		if err != nil {
			return nil, err
		}
		switch _, err := store.Get(ctx, address); {
		case err == nil:
			found = append(found, n)
		case !errors.Is(err, lease.ErrNone):
			return nil, fmt.Errorf("the network of %s is not known: give --network NETWORK: %w", address, err)
		}
	}
	switch len(found) {
	case 0:
		return nil, differs(s, errors.New(isFree(address, networks)))
	case 1:
		return d.open(found[0])
	}
	return nil, fmt.Errorf("%s is leased in networks %s: give --network NETWORK", address, strings.Join(found, ", "))
}

// expected returns the lease that was seen, with the holders that the user means. errors.Is matches lease.ErrHolder if
// somebody else has the address.
func (e expectation) expected(seen lease.Lease) (lease.Expected, error) {
	if e.nobody {
		if !seen.Nobodys() {
			return lease.Expected{}, fmt.Errorf("%s is %w: it is %s", seen.Address, lease.ErrHolder, seen.Whose())
		}
		return lease.Expected{Seen: seen}, nil
	}
	meant, err := choose(e.holdings(seen), e.selection())
	switch {
	case errors.Is(err, selection.ErrNothing):
		return lease.Expected{}, e.unmet(seen)
	case err != nil:
		return lease.Expected{}, err
	}
	expected := lease.Expected{Seen: seen}
	for _, h := range meant {
		expected.Holders = append(expected.Holders, h.holder)
	}
	return expected, nil
}

// holdings returns who has the address. Nobody has an address in quarantine. A reserved address belongs to its pod,
// whichever sandbox had it before.
func (e expectation) holdings(l lease.Lease) []holding {
	switch l.State {
	case lease.Quarantined:
		return nil
	case lease.Reserved:
		l.Last = lease.Holder{}
	}
	return slices.DeleteFunc(holdingsOf([]lease.Lease{l}), func(h holding) bool { return e.ifName != "" && h.holder.IfName != e.ifName })
}

// unmet says who has the lease instead of the named holder.
func (e expectation) unmet(l lease.Lease) error {
	if l.Nobodys() {
		return fmt.Errorf("%s is %w: it is %s; to release it, give --nobody instead of the holder", l.Address, lease.ErrHolder, l.Whose())
	}
	who := fmt.Sprintf("%q", e.name)
	if e.namespace != "" {
		who += " of namespace " + e.namespace
	}
	if e.ifName != "" {
		who = e.ifName + " of " + who
	}
	return fmt.Errorf("%s is %w: it is %s, and not %s", l.Address, lease.ErrHolder, l.Whose(), who)
}

func release(ctx context.Context, store *lease.Store, address netip.Addr, from expectation, output format, s *screen) error {
	was, left, err := releaseFrom(ctx, store, address, from)
	switch {
	case errors.Is(err, lease.ErrHolder), errors.Is(err, lease.ErrNone):
		return differs(s, err)
	case err != nil:
		return err
	}
	if output.isData() {
		return output.write(s.out, was)
	}
	now := "it is free"
	switch left.State {
	case lease.Held:
		now = "it is " + left.Whose()
	case lease.Quarantined:
		now = "it is in quarantine until " + timeCell(left.Until)
	}
	s.inform(fmt.Sprintf("released %s: it was %s; %s", address, was.Whose(), now))
	return nil
}

// releaseFrom finds the holder that the user means. It releases the address only if that holder still has it: the store
// compares.
func releaseFrom(ctx context.Context, store *lease.Store, address netip.Addr, from expectation) (was, left lease.Lease, err error) {
	is, err := store.Get(ctx, address)
	if err != nil {
		return was, left, err
	}
	expected, err := from.expected(is)
	if err != nil {
		return was, left, err
	}
	return store.ReleaseByHand(ctx, address, expected)
}

// completesHolder offers the holders of the address on the command line.
func (d *leaseDir) completesHolder(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	address, err := parseAddress(args[0])
	return d.completesLeases(func(h holding) []string {
		if err != nil || h.lease.Address != address {
			return nil
		}
		var names []string
		for _, has := range (expectation{}).holdings(h.lease) {
			names = append(names, has.holder.ContainerID)
			if pod := podOf(has.lease.Owner); pod.Name != "" {
				names = append(names, pod.String())
			}
		}
		return names
	})(cmd, args, begun)
}
