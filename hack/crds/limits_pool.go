package main

import (
	"fmt"
	"strings"

	"github.com/relink-cni/relink/pkg/pool"
)

// spanRules is the form of ranges and exclude.
var spanRules = []rule{{
	Rule: `isCIDR(self) ? cidr(self) == cidr(self).masked() : self.split('-').size() <= 2 && self.split('-').all(a, isIP(a)) && ` +
		`self.contains('.') != self.contains(':')`, // Both of one family.
	Message: "must be an address, a network, or two addresses such as 10.3.0.10-10.3.0.19",
}}

// The pool's own rules need a subnet that can be read. It has a rule of its own.
var poolRules = []rule{
	{
		Rule: `!has(self.gateway) || !isIP(self.gateway) || !isCIDR(self.subnet) || ` +
			`ip(self.gateway).family() == cidr(self.subnet).ip().family() && (cidr(self.subnet).containsIP(self.gateway) || ip(self.gateway).isLinkLocalUnicast())`,
		Message:           "the gateway must be an address of the subnet",
		MessageExpression: `'the gateway ' + self.gateway + ' must be an address of the subnet ' + self.subnet`,
		Path:              ".gateway",
	},
	{
		Rule: `!has(self.ranges) || !isCIDR(self.subnet) || self.ranges.all(r, isCIDR(r) ? cidr(self.subnet).containsCIDR(r) : ` +
			`r.split('-').all(a, !isIP(a) || cidr(self.subnet).containsIP(a)))`,
		Message:           "ranges must be parts of the subnet",
		MessageExpression: `'ranges must be parts of the subnet ' + self.subnet`,
		Path:              ".ranges",
	},
	// What else is wrong with ranges, policy-ranges.yaml refuses: here the API counts a rule that compares all of them as too dear.
	{
		Rule:    `has(oldSelf.ranges) == has(self.ranges)`,
		Message: "without ranges, the pool is the whole subnet, and gets none later; with ranges, it always has some",
		Path:    ".ranges",
	},
	{
		Rule:    `self.blockSize == oldSelf.blockSize`,
		Message: "blockSize never changes: make another pool",
		Path:    ".blockSize",
	},
}

var poolLimits = map[string]limit{
	"Pool": {
		About: "A pool of addresses for many nodes. People write its spec.",
		Rules: []rule{{
			Rule:    fmt.Sprintf("self.metadata.name.size() <= %d", pool.MaxName),
			Message: fmt.Sprintf("the name of a pool has at most %d characters: names of blocks begin with it", pool.MaxName),
		}},
	},
	"Pool.spec": {About: "spec says which addresses the pool has, and what pods get with them. They are of one subnet.", Rules: poolRules},
	"Spec.subnet": {
		About:     "subnet is the network that the addresses are of, such as 10.3.0.0/24. It never changes.",
		MaxLength: maxPrefix,
		Rules: append([]rule{{
			Rule:    `isCIDR(self) && cidr(self) == cidr(self).masked()`,
			Message: "must be a network such as 10.3.0.0/24",
		}, {
			Rule:    `!isCIDR(self) || ![` + reservedNetworks("'", "', '") + `].exists(n, cidr(n).containsCIDR(self) || cidr(self).containsCIDR(n))`,
			Message: "must have no address of the reserved networks " + reservedNetworks("", ", "),
		}}, immutable("subnet", "make another pool")...),
	},
	"Spec.ranges":    {MinItems: 1, MaxItems: smallLimit},
	"Spec.ranges[]":  {MaxLength: maxSpan, Rules: spanRules},
	"Spec.exclude":   {MaxItems: 256},
	"Spec.exclude[]": {MaxLength: maxSpan, Rules: spanRules},
	"Spec.gateway": {
		About:     "gateway is the pods' default gateway. No pod gets its address.",
		MaxLength: maxAddress,
		Rules:     []rule{{Rule: `isIP(self)`, Message: "must be an address of the subnet"}},
	},
	"Spec.routes":    {About: "routes are what pods get with an address.", MaxItems: smallLimit},
	"Spec.blockSize": {Default: pool.DefaultBlockSize, Min: 1, Max: pool.MaxBlockSize},
	"Spec.fenceAfter": {MaxLength: smallLimit, Pattern: durationPattern, Rules: []rule{{
		Rule:    `duration(self) >= duration('10m')`,
		Message: "must be at least 10m, such as 30m",
	}}},
	"Route.dst": {MaxLength: maxPrefix, Rules: []rule{{Rule: `isCIDR(self)`, Message: "must be a network such as 10.8.0.0/16"}}},
	"Route.gw":  {MaxLength: maxAddress, Rules: []rule{{Rule: `isIP(self)`, Message: "must be an address"}}},

	"Pool.status":      {About: "status is what the controller has counted. It is a hint: nothing is decided by it alone."},
	"Status.blocks":    {About: "blocks is how many blocks the pool has."},
	"Status.taken":     {About: "taken is how many of the blocks exist."},
	"Status.granted":   {About: "granted is how many of the addresses nodes have."},
	"Status.addresses": {MaxLength: maxAddress, Pattern: `^[0-9]+$`},
	"Status.free":      {MaxLength: (pool.MaxBlocks/8 + 2) / 3 * 4, Pattern: `^[A-Za-z0-9+/]*=*$`},
	"Status.problem":   {MaxLength: 4096},
	"Status.updated":   {About: "updated is when the controller has counted.", MaxLength: 64},
}

// reservedNetworks are the networks of package pool that have no pods, as a text.
func reservedNetworks(quote, between string) string {
	var networks []string
	for _, n := range pool.Reserved {
		networks = append(networks, n.String())
	}
	return quote + strings.Join(networks, between) + quote
}
