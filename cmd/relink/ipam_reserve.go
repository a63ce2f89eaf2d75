package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAMReserve(dir *leaseDir) *cobra.Command {
	var network, namespace string
	var retain time.Duration
	var force bool
	cmd := newVerb("ipam-reserve", func(cmd *cobra.Command, args []string) error {
		address, err := cli.ParseAddress(args[0])
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
	})
	cmd.Args = cli.Takes(2, 2)
	cmd.ValidArgsFunction = cli.CompleteArgs(cobra.NoFileCompletions, dir.completeLeases(namesOfHolding))
	addNetwork(cmd, dir, &network, "the `network` to reserve it in")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "the `namespace` of the pod")
	completeLeaseNamespaces(cmd, dir)
	cli.AddDuration(cmd, &retain, true, "for", "how long it is reserved, such as 24h (default until it is released)")
	cmd.Flags().BoolVar(&force, "force", false, "reserve also in a network that has given no address yet")
	cli.AddOutput(cmd)
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

func reserve(ctx context.Context, store *lease.Store, address netip.Addr, owner attachment.Owner, retain time.Duration, s *cli.Screen) error {
	l, err := store.Reserve(ctx, address, owner, retain)
	switch {
	case errors.Is(err, lease.ErrTaken), errors.Is(err, lease.ErrNotGiven):
		return cli.ReportDifference(s, err)
	case err != nil:
		return err
	}
	until := "until it is released"
	if !l.ByHandUntil.IsZero() {
		until = "until " + cli.TimeCell(l.ByHandUntil)
	}
	text := fmt.Sprintf("reserved %s for %s %s", address, owner, until)
	if l.State == lease.Held {
		text = fmt.Sprintf("%s is %s. After that it stays reserved for %s %s", address, l.Describe(), owner, until)
	}
	return s.Present(l, true, func() { s.Info(text) })
}
