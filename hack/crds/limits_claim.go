package main

import "github.com/relink-cni/relink/pkg/pool"

var claimRules = []rule{{
	Rule:    `self.active.store == oldSelf.active.store || self.epoch > oldSelf.epoch`,
	Message: "epoch must grow when the address moves to another store",
	Path:    ".epoch",
}}

var claimLimits = map[string]limit{
	"Claim": {
		About: "The address of a pool that an owner has, so that the owner's next pod finds it on any node. relink writes it.",
		Rules: []rule{{
			Rule:    `self.metadata.name.startsWith(self.spec.pool + '-') && self.metadata.name.size() == self.spec.pool.size() + 25`,
			Message: "the name must be spec.pool, a hyphen and 24 hex digits",
		}},
	},
	"Claim.spec":        {About: "spec says what is claimed, and by whom.", Rules: claimRules},
	"ClaimSpec.pool":    {About: "pool is the name of the AddressPool.", MinLength: 1, MaxLength: pool.MaxName, Pattern: objectName, Rules: immutable("pool", "make another claim")},
	"ClaimSpec.ifName":  {MinLength: 1, MaxLength: 15, Pattern: `^[^/\s]+$`, Rules: immutable("ifName", "make another claim")},
	"ClaimSpec.owner":   {About: "owner is the workload that the address belongs to.", Rules: immutable("owner", "make another claim")},
	"ClaimSpec.address": {About: "address is the owner's address."},
	"ClaimSpec.epoch": {Min: 1, Max: maxEpoch, Rules: []rule{{
		Rule: `self >= oldSelf`, Message: "epoch never gets smaller",
	}}},
	"ClaimSpec.active":   {About: "active is where the owner's pod runs, or has run last."},
	"ClaimSpec.retain":   {MaxLength: 64, Pattern: durationPattern},
	"ClaimSpec.accepted": {MaxLength: maxUID},
	"Place.podUID":       {About: "podUID is the UID of that pod.", MaxLength: maxUID},

	"Owner.group":     {MaxLength: maxName},
	"Owner.kind":      {About: `kind is as in Kubernetes, such as "StatefulSet", or "pod".`, MaxLength: 63},
	"Owner.namespace": {About: "namespace is the owner's.", MaxLength: 63},
	"Owner.name":      {About: "name is the owner's.", MaxLength: maxName},
	"Owner.uid":       {MaxLength: maxUID},
}
