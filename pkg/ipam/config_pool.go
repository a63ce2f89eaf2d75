package ipam

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/pool"
)

// pools returns the names and choices of the pools, and everything that is wrong with the key. There are none without the key.
func (s section) pools(n cniplugin.Network) (pools []string, errs cniplugin.Problems) {
	if s.Pool == nil || string(s.Pool) == "null" {
		s.checkRoam(nil, &errs)
		return nil, errs
	}
	var elements []json.RawMessage
	if json.Unmarshal(s.Pool, &elements) != nil {
		elements = []json.RawMessage{s.Pool}
	}
	var names []string
	for _, e := range elements {
		var choice struct {
			OneOf []string `json:"oneOf"`
		}
		var single string
		if json.Unmarshal(e, &single) == nil {
			choice.OneOf = []string{single}
		} else if json.Unmarshal(e, &choice) != nil {
			choice.OneOf = nil
		}
		if len(choice.OneOf) == 0 {
			return nil, wrongPool(s.Pool)
		}
		names, pools = append(names, choice.OneOf...), append(pools, pool.Choice(choice.OneOf...))
	}
	if len(pools) == 0 {
		return nil, wrongPool(s.Pool)
	}
	for i, name := range names {
		switch {
		case len(name) > pool.MaxName || (attachment.Pod{Namespace: "any", Name: name}).Validate() != nil: // A pod's name has the same form.
			errs.Refuse("ipam.pool", name,
				fmt.Sprintf("must be the name of an AddressPool: small letters, digits, '-' and '.', with a letter or digit at both ends of each part, and at most %d of these", pool.MaxName))
		case slices.Contains(names[:i], name):
			errs.Refuse("ipam.pool", name, "is in the list twice: keep one")
		}
	}
	s.checkRoam(pools, &errs)
	checkPoolKeys(n, &errs)
	return pools, errs
}

// wrongPool is the error of a value of "pool" that has another form.
func wrongPool(value json.RawMessage) cniplugin.Problems {
	return cniplugin.Problems{cniplugin.ConfigError("ipam.pool", cniplugin.RawValue(value),
		`must be the name of an AddressPool, an object with the list "oneOf" for the one that selects the node, or a list of these: the pod gets an address of each`)}
}

// checkRoam refuses "roam" where no owner can get an address of another pool.
func (s section) checkRoam(pools []string, errs *cniplugin.Problems) {
	if !s.Roam || slices.ContainsFunc(pools, pool.IsChoice) && (s.byOwner() || s.Sticky == "pod") {
		return
	}
	errs.Refuse("ipam.roam", "true", `needs "sticky", and a "pool" with "oneOf": there the owner's next address is of another pool`)
}

// checkPoolKeys refuses each key that does not go with "pool".
func checkPoolKeys(n cniplugin.Network, errs *cniplugin.Problems) {
	var written map[string]json.RawMessage
	_ = json.Unmarshal(n.IPAM.JSON, &written) // It was read before.
	check := func(key string, value json.RawMessage) {
		switch string(value) {
		case "", "null", "false", "[]", `""`:
		default:
			errs.Refuse(key, cniplugin.RawValue(value), `does not go with "pool", which takes its place: remove it`)
		}
	}
	for _, key := range []string{"ranges", "subnet", "rangeStart", "rangeEnd", "gateway", "exclude", "dataDir", "statusExhausted"} {
		check("ipam."+key, written[key])
	}
	check("runtimeConfig.ipRanges", n.RuntimeConfig.IPRanges)
}

// needsAPIOnNewNode returns the key for which no pod starts on a new node without the API, empty for none. An ADD itself can do without: the
// store may have what it needs.
func (n network) needsAPIOnNewNode() string {
	if key := n.needsAPI(); key != "" || len(n.pools) == 0 {
		return key
	}
	return `"pool"`
}
