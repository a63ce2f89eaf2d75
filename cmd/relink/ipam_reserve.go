package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAMReserve(dir *leaseDir) *cobra.Command {
	var network, namespace string
	var retain time.Duration
	var force bool
	cmd := &cobra.Command{
		Use:   "reserve ADDRESS [NAMESPACE/]POD --network NETWORK",
		Short: "Reserve an address for a pod",
		Long: `Reserve an address for a pod, known by namespace and name. The pod's next sandbox on the
network gets it, and nobody else does. The address may be free, in quarantine, or that
pod's already. A pod with several such addresses gets the one that was reserved last.
An address outside of the ranges is refused. So is a network that has given no address yet,
because its name may be misspelt.

Exit status 0: it is reserved; 1: another one has it, or no ADD gives it, and a message says so;
2: usage or environment.`,
		Example: `  relink ipam reserve 10.3.0.9 shop/db-0 --network lan
  relink ipam reserve 10.3.0.9 db-0 -n shop --network lan --for 24h`,
		Args:              takes(2, 2),
		ValidArgsFunction: completeArgs(cobra.NoFileCompletions, dir.completeLeases(namesOfHolding)),
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := parseAddress(args[0])
			if err != nil {
				return err
			}
			pod, err := parsePod(args[1], namespace)
			if err != nil {
				return err
			}
			store, err := dir.open(network)
			if err != nil {
				return err
			}
			if exists, err := store.Exists(); err != nil {
				return err
			} else if !exists && !force {
				return fmt.Errorf("invalid --network %q: it has given no address yet; check the name, or add --force to reserve the address all the same", network)
			}
			return reserve(cmd.Context(), store, address, pod.Owner(), retain, screenOf(cmd))
		},
	}
	addNetwork(cmd, dir, &network, "the `network` to reserve it in")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "the `namespace` of the pod")
	completeLeaseNamespaces(cmd, dir)
	addDuration(cmd, &retain, true, "for", "how long it is reserved, such as 24h (default until it is released)")
	cmd.Flags().BoolVar(&force, "force", false, "reserve also in a network that has given no address yet")
	addOutput(cmd)
	return cmd
}

// parsePod returns the pod of this name and namespace. There is no default namespace: an address that is reserved in
// the wrong one is lost to both pods.
func parsePod(name, namespace string) (attachment.Pod, error) {
	pod := attachment.Pod{Namespace: namespace, Name: name}
	if podNamespace, rest, qualified := strings.Cut(name, "/"); qualified {
		if namespace != "" && namespace != podNamespace {
			return pod, fmt.Errorf("invalid pod %q: --namespace says %s; give one of them", name, namespace)
		}
		pod = attachment.Pod{Namespace: podNamespace, Name: rest}
	} else if namespace == "" {
		return pod, fmt.Errorf("the namespace of pod %q is missing: name the pod as NAMESPACE/POD, or add --namespace", name)
	}
	if err := pod.Validate(); err != nil {
		return pod, fmt.Errorf("invalid pod %q: %w", name, err)
	}
	return pod, nil
}

func reserve(ctx context.Context, store *lease.Store, address netip.Addr, owner attachment.Owner, retain time.Duration, s *screen) error {
	l, err := store.Reserve(ctx, address, owner, retain)
	switch {
	case errors.Is(err, lease.ErrTaken), errors.Is(err, lease.ErrNotGiven):
		return reportDifference(s, err)
	case err != nil:
		return err
	}
	until := "until it is released"
	if !l.ByHandUntil.IsZero() {
		until = "until " + timeCell(l.ByHandUntil)
	}
	text := fmt.Sprintf("reserved %s for %s %s", address, owner, until)
	if l.State == lease.Held {
		text = fmt.Sprintf("%s is %s. After that it stays reserved for %s %s", address, l.Describe(), owner, until)
	}
	return s.present(l, true, func() { s.info(text) })
}
