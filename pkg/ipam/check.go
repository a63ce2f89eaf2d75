package ipam

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Check fails, with code 100, if prevResult has an address that the attachment does not hold.
func (c *Call) Check(ctx context.Context) error {
	// An ADD may refuse the configuration by now. The attachment still holds its addresses.
	store, err := c.openStore()
	if err != nil {
		return err
	}
	previous, err := c.config.Previous()
	if err != nil {
		return err
	}
	var addresses []netstate.Address
	if previous != nil {
		if addresses, err = cniplugin.Addresses(cniplugin.ForInterface(previous, c.args.IfName)); err != nil {
			return err
		}
	}
	held, err := store.AllowForeign().HeldBy(ctx, c.key())
	if ignoreNotLeased(err) != nil {
		return withCode(err)
	}
	if wrong := notHeld(c.key(), addresses, held); len(wrong) > 0 {
		return cniplugin.Error(cniplugin.CodeDiffers, "%s: %s", PluginName, strings.Join(wrong, "; "))
	}
	return nil
}

// notHeld says which of the previous addresses the attachment does not hold.
func notHeld(key attachment.Key, previous []netstate.Address, held []lease.Lease) []string {
	if len(held) == 0 {
		return []string{key.String() + " holds no address"}
	}
	var wrong []string
	for _, a := range previous {
		if !slices.ContainsFunc(held, func(l lease.Lease) bool { return l.Address == a.Prefix.Addr() }) {
			wrong = append(wrong, fmt.Sprintf("%s does not hold %s", key, a.Prefix.Addr()))
		}
	}
	return wrong
}
