package main

import "github.com/relink-cni/relink/pkg/pool"

// maxEpoch is as pool.Block.Check has it.
const maxEpoch = 1 << 62

const newBlockHint = "make another block"

// partyLimits are the limits of what identifies a store. Holders, wants and places have them.
var partyLimits = map[string]limit{
	"Party.node":    {About: "node is the name of the node.", MinLength: 1, MaxLength: maxName, Pattern: objectName},
	"Party.nodeUID": {About: "nodeUID is the UID of the node's object.", MaxLength: maxUID},
	"Party.network": {About: "network is the name of the network on that node.", MinLength: 1, MaxLength: 255, Pattern: networkName},
	"Party.store":   {MinLength: 1, MaxLength: smallLimit, Pattern: `^[A-Za-z0-9._-]+$`},
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
	"BlockSpec.pool":    {About: "pool is the name of the AddressPool.", MinLength: 1, MaxLength: pool.MaxName, Pattern: objectName, Rules: immutable("pool", newBlockHint)},
	"BlockSpec.poolUID": {About: "poolUID is the UID of the AddressPool.", MaxLength: maxUID, Rules: immutable("poolUID", newBlockHint)},
	"BlockSpec.index":   {About: "index is the block's place in the pool, from 0.", Max: pool.MaxBlocks - 1, Rules: immutable("index", newBlockHint)},
	"BlockSpec.node":    {About: "node is the name of the node that has made the block.", MinLength: 1, MaxLength: maxName, Pattern: objectName, Rules: immutable("node", newBlockHint)},
	"BlockSpec.first":   {About: "first is the first address.", Rules: immutable("first", newBlockHint)},
	"BlockSpec.last":    {About: "last is the last address.", Rules: immutable("last", newBlockHint)},
	"BlockSpec.epoch": {Min: 1, Max: maxEpoch, Rules: []rule{{
		Rule: `self >= oldSelf`, Message: "epoch never gets smaller",
	}}},
	"BlockSpec.holders": {
		About: "holders are the stores that have addresses of the block.", MaxItems: smallLimit, Key: "id",
		Rules: []rule{{Rule: `self.all(h, self.exists_one(o, o.store == h.store))`, Message: "each store is one holder only"}},
	},
	"BlockSpec.addresses": {MinLength: 1, MaxLength: pool.MaxBlockSize, Pattern: `^[A-Za-z0-9+/.-]+$`, Rules: []rule{{
		Rule: `self.size() == oldSelf.size()`, Message: "the number of addresses never changes: " + newBlockHint,
	}}},
	"BlockSpec.unproven": {MaxItems: pool.MaxBlockSize},
	"BlockSpec.want":     {MaxItems: smallLimit},
	"Holder.id":          {MinLength: 1, MaxLength: 1, Pattern: `^[A-Za-z0-9+/]$`},
	"Holder.epoch":       {Max: maxEpoch},
	"Holder.boot":        {MaxLength: maxUID},
	"Holder.fenceAfter":  {MaxLength: smallLimit, Pattern: durationPattern},
	"Holder.fenced":      {MaxLength: 1024},
	"Want.count":         {Max: 1 << 16},
	"Want.epoch":         {Max: maxEpoch},
	"Want.claim":         {About: "claim is the name of that claim.", MaxLength: maxName},
	"Want.podUID":        {MaxLength: maxUID},
}
