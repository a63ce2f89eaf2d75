package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
)

const (
	// requiredTimeout is how long an ADD waits for what the API knows of the pod, if it cannot do without.
	requiredTimeout = owner.AskTimeout + 500*time.Millisecond
	// optionalTimeout is how long an ADD waits that can do without.
	optionalTimeout = 500 * time.Millisecond
)

// Owner returns the owner of the pod by the Kubernetes API, nobody if nobody can tell. It asks unless Add has asked.
func (c *Call) Owner(ctx context.Context) attachment.Owner {
	if env, err := cniplugin.ParseArgs(c.args.Args); err == nil && !c.ownerAsked {
		_ = c.askOwner(ctx, env.Pod, optionalTimeout, false) // Without an answer, nobody knows.
	}
	if c.answer == nil {
		return attachment.Owner{}
	}
	return c.answer.Owner
}

// queryOwner asks once what the API knows of the pod. Without an answer, an ADD goes on by the pod's name, unless the
// configuration needs the API.
func (c *Call) queryOwner(ctx context.Context, n network) error {
	if c.ownerAsked {
		return nil
	}
	key, limit := n.needsAPI(), optionalTimeout
	if key != "" {
		limit = requiredTimeout
	}
	err := c.askOwner(ctx, n.pod, limit, n.claims)
	switch {
	case err == nil:
	case errors.Is(err, owner.ErrInvalid):
		return cniplugin.Error(types.ErrInvalidNetworkConfig, "%s: %v", PluginName, err)
	case key != "":
		return cniplugin.Error(types.ErrTryAgainLater, "%s: %s needs the Kubernetes API: %v", PluginName, key, err)
	case !errors.Is(err, owner.ErrNoAsker):
		fmt.Fprintf(c.stderr, "%s: the pod %s gets an address without a look at its annotations: %v\n", PluginName, n.pod, err)
	}
	return nil
}

// askOwner asks about the pod, if there is one, and notes the answer.
func (c *Call) askOwner(ctx context.Context, pod attachment.Pod, limit time.Duration, claims bool) error {
	if pod.Owner() == (attachment.Owner{}) {
		return nil
	}
	c.ownerAsked = true
	if c.owners == nil {
		return fmt.Errorf("%w: %w", owner.ErrUnavailable, owner.ErrNoAsker)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := c.owners.Ask(ctx, owner.Question{Pod: pod, Network: c.config.Name, IfName: c.args.IfName, Claims: claims})
	if err == nil {
		c.answer = &answer
	}
	return err
}

// needsAPI returns the key for which an ADD cannot do without the API, empty for none.
func (n network) needsAPI() string {
	switch {
	case n.byOwner():
		return `"sticky": "owner"`
	case n.Static != nil:
		return `"static"`
	}
	return ""
}

// applyOwner puts into the request what the API knows of the owner.
func applyOwner(r *lease.Request, a owner.Answer) {
	byName := r.Owner
	// Whatever keeps the address: two pods of such an owner never have it at the same time.
	r.APIOwner, r.Policy.Shared = a.Owner, !a.SinglePod
	if !r.Policy.ByOwner {
		r.AlternateOwner = a.Owner // It may have been kept for the owner before.
		return
	}
	r.Owner, r.AlternateOwner = a.Owner, byName
	if r.Policy.Sticky = a.Persistent; !a.Persistent {
		r.Policy.Retain = 0
	}
}

// canConfirm refuses what cannot be done by a program of its own. It would write a claim before the interface plugin has
// probed for the address, and a claim is never overwritten.
func (c *Call) canConfirm() error {
	probes, err := c.Detection()
	if err == nil && probes != nil && c.config.AllowPersistentIPs {
		return cniplugin.ConfigError("ipam.conflictDetection", cniplugin.RawValue("true"),
			`works with "allowPersistentIPs" only inside of relink-macvlan and relink-vlan: do not set RELINK_IPAM_EXEC`)
	}
	return err
}

// addAnswer adds the addresses that the pod's annotation and its IPAMClaim ask for.
func (n *network) addAnswer(a owner.Answer) {
	if a.Claim != nil {
		for _, p := range a.Claim.IPs {
			q := requestsBy("status.ips of IPAMClaim "+a.Claim.Name, p.Addr())[0]
			q.fromClaim = true
			n.requested = mergeRequest(n.requested, q)
		}
	}
	if a.Static != nil {
		n.candidates = requestsBy("annotation "+a.Static.Key, a.Static.Addresses...)
	}
}

// requestsBy are addresses that a key in the Kubernetes API asks for.
func requestsBy(key string, addresses ...netip.Addr) (requests []requestedAddress) {
	for _, a := range addresses {
		refuse := func(requirement string) error { return cniplugin.ConfigError(key, a.String(), requirement) }
		requests = append(requests, requestedAddress{address: a, source: key, refuse: refuse})
	}
	return requests
}
