package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/selection"
)

func newIPAMRelease(dir *leaseDir) *cobra.Command {
	var network string
	holder := namedHolder{Selection: selection.Selection{Lister: ipamList}}
	cmd := newVerb("ipam-release", func(cmd *cobra.Command, args []string) error {
		address, err := cli.ParseAddress(args[0])
		if err != nil {
			return err
		}
		holder.Names = args[1:]
		if err := holder.check(); err != nil {
			return err
		}
		s := screenOf(cmd)
		store, err := dir.storeOf(cmd.Context(), address, network, s)
		if err != nil {
			return err
		}
		return release(cmd.Context(), store, address, holder, s)
	})
	cmd.Args = cli.Takes(1, 2)
	cmd.ValidArgsFunction = cli.CompleteArgs(dir.completeLeases(addressesOf), dir.completeLeases(namesOfHolding))
	addNetwork(cmd, dir, &network, "the `network` of the address (default the one that has a lease of it)")
	flags := cmd.Flags()
	flags.StringVarP(&holder.Namespace, "namespace", "n", "", "the `namespace` of the pod")
	completeLeaseNamespaces(cmd, dir)
	flags.StringVar(&holder.ifName, "ifname", "", "the `interface` of the holder, if it holds the address by several")
	cli.Must(cmd.RegisterFlagCompletionFunc("ifname", dir.completeLeases(func(h holding) []string { return []string{h.holder.IfName} })))
	flags.BoolVar(&holder.unheld, "nobody", false, "nobody holds it: it is in quarantine, or reserved for nobody")
	cli.AddOutput(cmd)
	return cmd
}

// namedHolder is the holder that the command line names: a pod, or a sandbox by the beginning of its container ID.
type namedHolder struct {
	selection.Selection
	ifName string
	unheld bool
}

// check reports a command line that names no holder, or one beside --nobody.
func (e namedHolder) check() error {
	switch {
	case e.unheld && len(e.Names) > 0:
		return fmt.Errorf("--nobody contradicts the holder %q: give one of them", e.Names[0])
	case !e.unheld && len(e.Names) == 0:
		return errors.New("the holder is missing: name its pod or its container ID, or give --nobody if nobody holds the address; relink ipam show ADDRESS says who does")
	}
	return e.Validate()
}

// storeOf returns the store of the network. If no network is named, it returns the store of the only network with a
// lease of the address. If no store has one, storeOf reports that and returns errDiffers.
func (d leaseDir) storeOf(ctx context.Context, address netip.Addr, network string, s *cli.Screen) (*lease.Store, error) {
	stores, err := d.stores(network)
	if err != nil {
		return nil, err
	}
	if network != "" {
		return stores[0], nil
	}
	var found []*lease.Store
	for _, store := range stores {
		switch _, err := store.Get(ctx, address); {
		case err == nil:
			found = append(found, store)
		case !errors.Is(err, lease.ErrNotLeased):
			return nil, fmt.Errorf("the network of %s is not known: give --network NETWORK: %w", address, err)
		}
	}
	switch len(found) {
	case 0:
		return nil, cli.ReportDifference(s, errors.New(freeText(address, cli.Texts(stores, (*lease.Store).Network))))
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("%s is leased in networks %s: give --network NETWORK", address, strings.Join(cli.Texts(found, (*lease.Store).Network), ", "))
}

// chosen returns the holders that the user means, of the lease that was seen. errors.Is matches lease.ErrHolderChanged if
// somebody else has the address.
func (e namedHolder) chosen(current lease.Lease) (holders []lease.SeenHolder, err error) {
	mismatch := fmt.Errorf("%s is %w: it is %s", current.Address, lease.ErrHolderChanged, current.Describe())
	if e.unheld && current.IsOwnerless() {
		return nil, nil
	} else if e.unheld {
		return nil, mismatch
	}
	meant, err := choose(e.holdings(current), e.Selection)
	if errors.Is(err, selection.ErrNothing) && current.IsOwnerless() {
		return nil, fmt.Errorf("%w; to release it, give --nobody instead of the holder", mismatch)
	} else if errors.Is(err, selection.ErrNothing) {
		words := e.Words()
		if e.ifName != "" {
			words = append(words, "--ifname", e.ifName)
		}
		return nil, fmt.Errorf("%w, and not %q", mismatch, strings.Join(words, " "))
	}
	for _, h := range meant {
		holders = append(holders, lease.SeenHolder{Address: current.Address, Holder: h.holder})
	}
	return holders, err
}

// holdings returns who has the address. Nobody has an address in quarantine. A reserved address belongs to its pod,
// whichever sandbox had it before.
func (e namedHolder) holdings(l lease.Lease) []holding {
	switch l.State {
	case lease.Quarantined:
		return nil
	case lease.Reserved:
		l.Last = lease.Holder{}
	}
	return slices.DeleteFunc(holdingsOf([]lease.Lease{l}), func(h holding) bool { return e.ifName != "" && h.holder.IfName != e.ifName })
}

// release finds the holder that the user means. It releases the address only if that holder still has it: the store compares.
func release(ctx context.Context, store *lease.Store, address netip.Addr, holder namedHolder, s *cli.Screen) error {
	released, err := store.Get(ctx, address)
	if err == nil {
		err = holder.release(ctx, store, released)
	}
	switch {
	case errors.Is(err, lease.ErrHolderChanged), errors.Is(err, lease.ErrNotLeased):
		return cli.ReportDifference(s, err)
	case err != nil:
		return err
	}
	state := "it is free"
	switch remaining, err := store.Get(ctx, address); {
	case err != nil && !errors.Is(err, lease.ErrNotLeased):
		return err
	case remaining.State == lease.Held:
		state = "it is " + remaining.Describe()
	case remaining.State == lease.Quarantined:
		state = "it is in quarantine until " + cli.TimeCell(remaining.Until)
	}
	return s.Present(released, true, func() { s.Info(fmt.Sprintf("released %s: it was %s; %s", address, released.Describe(), state)) })
}

// release releases the address, if the lease is as l.
func (e namedHolder) release(ctx context.Context, store *lease.Store, l lease.Lease) error {
	holders, err := e.chosen(l)
	switch {
	case err != nil:
		return err
	case l.State == lease.Held:
		return store.GiveUp(ctx, holders, lease.ByHand)
	}
	return store.End(ctx, l, lease.ByHand)
}
