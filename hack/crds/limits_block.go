package main

import "github.com/relink-cni/relink/pkg/pool"

// mostEpoch is as pool.Block.Check has it.
const mostEpoch = 1 << 62

const another = "make another block"

// party are the limits of what identifies a store. Holders, wants and places have them.
var party = map[string]limit{
	"Party.node":    {About: "node is the name of the node.", MinLength: 1, MaxLength: longestName, Pattern: objectName},
	"Party.nodeUID": {About: "nodeUID is the UID of the node's object.", MaxLength: longestUID},
	"Party.network": {About: "network is the name of the network on that node.", MinLength: 1, MaxLength: 255, Pattern: networkName},
	"Party.store":   {MinLength: 1, MaxLength: most, Pattern: `^[A-Za-z0-9._-]+$`},
}

var blockRules = []rule{
	{
		Rule:    `self.addresses.split('').all(c, c == '.' || c == '-' || has(self.holders) && self.holders.exists(h, h.id == c))`,
		Message: "each character of addresses must be the id of a holder, '.' or '-'",
		Path:    ".addresses",
	},
	{
		Rule:    `self.addresses == oldSelf.addresses || self.epoch > oldSelf.epoch`,
		Message: "epoch must grow with each change of addresses",
		Path:    ".epoch",
	},
}

var blockLimits = map[string]limit{
	"Block": {
		About: "A block of addresses of a pool. It says of each address which node has it. relink writes it.",
		Rules: []rule{{
			// The API cannot say how long the text of a number is.
			Rule: `self.metadata.name.startsWith(self.spec.pool + '-') && self.metadata.name.matches('-(0|[1-9][0-9]{0,8})$') && ` +
				`int(self.metadata.name.substring(self.spec.pool.size() + 1)) == self.spec.index`,
			Message: "the name must be spec.pool, a hyphen and spec.index",
		}},
	},
	"Block.spec":        {About: "spec says whose each address of the block is.", Rules: blockRules},
	"BlockSpec.pool":    {About: "pool is the name of the AddressPool.", MinLength: 1, MaxLength: pool.MostName, Pattern: objectName, Rules: never("pool", another)},
	"BlockSpec.poolUID": {About: "poolUID is the UID of the AddressPool.", MaxLength: longestUID, Rules: never("poolUID", another)},
	"BlockSpec.index":   {About: "index is the block's place in the pool, from 0.", Max: pool.MostBlocks - 1, Rules: never("index", another)},
	"BlockSpec.node":    {About: "node is the name of the node that has made the block.", MinLength: 1, MaxLength: longestName, Pattern: objectName, Rules: never("node", another)},
	"BlockSpec.first":   {About: "first is the first address.", Rules: never("first", another)},
	"BlockSpec.last":    {About: "last is the last address.", Rules: never("last", another)},
	"BlockSpec.epoch": {Min: 1, Max: mostEpoch, Rules: []rule{{
		Rule: `self >= oldSelf`, Message: "epoch never gets smaller",
	}}},
	"BlockSpec.holders": {
		About: "holders are the stores that have addresses of the block.", MaxItems: most, Key: "id",
		Rules: []rule{{Rule: `self.all(h, self.exists_one(o, o.store == h.store))`, Message: "each store is one holder only"}},
	},
	"BlockSpec.addresses": {MinLength: 1, MaxLength: pool.MostBlockSize, Pattern: `^[A-Za-z0-9+/.-]+$`, Rules: []rule{{
		Rule: `self.size() == oldSelf.size()`, Message: "the number of addresses never changes: " + another,
	}}},
	"BlockSpec.unproven": {MaxItems: pool.MostBlockSize},
	"BlockSpec.want":     {MaxItems: most},
	"Holder.id":          {MinLength: 1, MaxLength: 1, Pattern: `^[A-Za-z0-9+/]$`},
	"Holder.epoch":       {Max: mostEpoch},
	"Holder.boot":        {MaxLength: longestUID},
	"Holder.fenceAfter":  {MaxLength: most, Pattern: isDuration},
	"Holder.fenced":      {MaxLength: 1024},
	"Want.count":         {Max: 1 << 16},
	"Want.epoch":         {Max: mostEpoch},
	"Want.claim":         {About: "claim is the name of that claim.", MaxLength: longestName},
	"Want.podUID":        {MaxLength: longestUID},
}
