package ipam

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// Check fails, with code 100, if prevResult has an address that the attachment does not hold.
func (c *Call) Check(ctx context.Context) error {
	// An ADD may refuse the configuration by now. The attachment still holds its addresses.
	store, err := c.openStore()
	if err != nil {
		return err
	}
	previous, err := c.previousAddresses()
	if err != nil {
		return err
	}
	held, err := store.AllowForeign().HeldBy(ctx, c.key())
	if ignoreNotLeased(err) != nil {
		return withCode(err)
	}
	if wrong := notHeld(c.key(), previous, held); len(wrong) > 0 {
		return cniplugin.Error(cniplugin.CodeDiffers, "%s: %s", PluginName, strings.Join(wrong, "; "))
	}
	return nil
}

// previousAddresses returns the addresses that prevResult has for the interface. Other plugins
// of the list may have added interfaces of their own.
func (c *Call) previousAddresses() ([]netip.Addr, error) {
	if c.config.PrevResult == nil {
		return nil, nil
	}
	wrong := func(reason string) error {
		return cniplugin.ConfigError("prevResult", cniplugin.RawValue(c.config.PrevResult), "must be the result of the ADD"+reason)
	}
	var result *current.Result
	previous, err := c.config.Previous()
	if err == nil {
		result, err = current.NewResultFromResult(previous)
	}
	if err != nil {
		return nil, wrong("")
	}
	var addresses []netip.Addr
	for _, ip := range result.IPs {
		if ip == nil || slices.Contains(result.Interfaces, nil) {
			return nil, wrong(": an address or an interface is null")
		}
		if i := ip.Interface; i != nil && *i >= 0 && *i < len(result.Interfaces) && result.Interfaces[*i].Name != c.args.IfName {
			continue
		}
		a, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return nil, wrong(": an address is none")
		}
		addresses = append(addresses, a.Unmap())
	}
	return addresses, nil
}

// notHeld says which of the previous addresses the attachment does not hold.
func notHeld(key attachment.Key, previous []netip.Addr, held []lease.Lease) []string {
	if len(held) == 0 {
		return []string{key.String() + " holds no address"}
	}
	var wrong []string
	for _, a := range previous {
		if !slices.ContainsFunc(held, func(l lease.Lease) bool { return l.Address == a }) {
			wrong = append(wrong, fmt.Sprintf("%s does not hold %s", key, a))
		}
	}
	return wrong
}
