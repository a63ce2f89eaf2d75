package ipam

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/pool"
)

// pools returns the names of the pools, and everything that is wrong with the key. There are none without the key.
func (s section) pools(n cniplugin.Network) ([]string, []error) {
	if s.Pool == nil || string(s.Pool) == "null" {
		return nil, nil
	}
	var names []string
	var single string
	if json.Unmarshal(s.Pool, &single) == nil {
		names = []string{single}
	} else if json.Unmarshal(s.Pool, &names) != nil || len(names) == 0 {
		return nil, []error{cniplugin.ConfigError("ipam.pool", cniplugin.RawValue(s.Pool), `must be the name of an AddressPool, or a list of names: the pod gets an address of each`)}
	}
	var errs []error
	for i, name := range names {
		switch {
		case len(name) > pool.MaxName || (attachment.Pod{Namespace: "any", Name: name}).Validate() != nil: // A pod's name has the same form.
			errs = append(errs, cniplugin.ConfigError("ipam.pool", name,
				fmt.Sprintf("must be the name of an AddressPool: small letters, digits, '-' and '.', with a letter or digit at both ends of each part, and at most %d of these", pool.MaxName)))
		case slices.Contains(names[:i], name):
			errs = append(errs, cniplugin.ConfigError("ipam.pool", name, "is in the list twice: keep one"))
		}
	}
	return names, append(errs, checkPoolKeys(n)...)
}

// checkPoolKeys returns an error for each key that does not go with "pool".
func checkPoolKeys(n cniplugin.Network) (errs []error) {
	var written map[string]json.RawMessage
	_ = json.Unmarshal(n.IPAM.JSON, &written) // It was read before.
	check := func(key string, value json.RawMessage) {
		switch string(value) {
		case "", "null", "false", "[]", `""`:
		default:
			errs = append(errs, cniplugin.ConfigError(key, cniplugin.RawValue(value), `does not go with "pool", which takes its place: remove it`))
		}
	}
	for _, key := range []string{"ranges", "subnet", "rangeStart", "rangeEnd", "gateway", "exclude", "dataDir", "statusExhausted"} {
		check("ipam."+key, written[key])
	}
	check("runtimeConfig.ipRanges", n.RuntimeConfig.IPRanges)
	return errs
}

// needsAPIOnNewNode returns the key for which no pod starts on a new node without the API, empty for none. An ADD itself can do without: the
// store may have what it needs.
func (n network) needsAPIOnNewNode() string {
	if key := n.needsAPI(); key != "" || len(n.pools) == 0 {
		return key
	}
	return `"pool"`
}
