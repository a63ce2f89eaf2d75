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
func (s section) pools(a runtimeRequest) ([]string, []error) {
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
	return names, append(errs, s.checkPoolKeys(a)...)
}

// checkPoolKeys returns an error for each key that does not go with "pool".
func (s section) checkPoolKeys(a runtimeRequest) (errs []error) {
	for _, key := range []struct {
		name    string
		present bool
		value   any
		reason  string
	}{
		{"ipam.ranges", len(s.Ranges) > 0, asWritten(s.Ranges), "the AddressPool has the ranges"},
		{"ipam.subnet", s.Subnet != "", s.Subnet, "the AddressPool has the subnet"},
		{"ipam.rangeStart", s.RangeStart != "", s.RangeStart, "the AddressPool has the ranges"},
		{"ipam.rangeEnd", s.RangeEnd != "", s.RangeEnd, "the AddressPool has the ranges"},
		{"ipam.gateway", s.Gateway != "", s.Gateway, "the AddressPool has the gateway"},
		{"ipam.exclude", len(s.Exclude) > 0, asWritten(s.Exclude), "the AddressPool has what is excluded"},
		{"ipam.dataDir", s.DataDir != "", s.DataDir, "relink-agent finds the addresses only in the default directory"},
		{"ipam.statusExhausted", s.StatusExhausted, cniplugin.RawValue("true"), "other nodes can hand over addresses"},
		{"runtimeConfig.ipRanges", len(a.ranges) > 0, asWritten(a.ranges), "the AddressPool has the ranges; remove the capability"},
	} {
		if key.present {
			errs = append(errs, cniplugin.ConfigError(key.name, key.value, `does not go with "pool": remove it; `+key.reason))
		}
	}
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

// asWritten returns a part of the configuration as somebody can have written it.
func asWritten(part any) cniplugin.RawValue {
	b, _ := json.Marshal(part) // It was read from JSON.
	return cniplugin.RawValue(b)
}
