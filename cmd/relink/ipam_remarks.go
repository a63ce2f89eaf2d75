package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/printable"
)

// storeRemarks says what is wrong with a store, and what to do about it: its time, and the addresses of pools that pods hold and that this
// node does not have. Nothing else on the node shows people that another pod may get such an address.
func storeRemarks(ctx context.Context, store *lease.Store) (remarks []string, err error) {
	clock, err := clockRemark(ctx, store)
	if err != nil {
		return nil, err
	}
	if clock != "" {
		remarks = append(remarks, clock)
	}
	g, err := store.Granted(ctx)
	if errors.Is(err, lease.ErrNotLeased) {
		return remarks, nil
	}
	for _, p := range g.Pools {
		if lost := p.Lost(); len(lost) > 0 {
			remarks = append(remarks, fmt.Sprintf("pods of network %s hold %s of the pool %s, and this node does not have that: other nodes may give it. Delete these pods, unless "+
				"a virtual machine is on its way to this node", store.Network(), printable.First(cli.Strings(lost), maxLostNamed, ", "), p.Name))
		}
	}
	return remarks, err
}

// maxLostNamed is how many addresses a remark names.
const maxLostNamed = 8

// maxClockOffset is how far a store's time may be from the time of day. A clock that is set right after a boot is off by
// less than this.
const maxClockOffset = time.Hour

// clockRemark says that the time of the store is wrong. It is empty if the time is right.
func clockRemark(ctx context.Context, store *lease.Store) (string, error) {
	ahead, err := store.ClockAhead(ctx)
	if err != nil || ahead.Abs() < maxClockOffset {
		return "", err
	}
	offset := "ahead of the clock: the clock was ahead at a boot. Reservations will end too late."
	if ahead < 0 {
		offset = "behind the clock: the clock was behind at the boot. At the next boot, reservations would end too early."
	}
	return fmt.Sprintf("the time of network %[1]s is %[2]s %[3]s If the clock is right now, run relink ipam reset-clock --network %[1]s",
		store.Network(), ahead.Abs().Round(time.Minute), offset), nil
}
