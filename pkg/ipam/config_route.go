package ipam

import (
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// routes go into the result as they are.
type routes []*types.Route

// UnmarshalJSON reads a list of routes. Its error names the one that is wrong.
func (r *routes) UnmarshalJSON(b []byte) error {
	var written []json.RawMessage
	if err := json.Unmarshal(b, &written); err != nil {
		return cniplugin.ConfigError("ipam.routes", cniplugin.RawValue(b), "must be a list of routes: put it in [ ]")
	}
	*r = nil
	for i, w := range written {
		path := fmt.Sprintf("ipam.routes[%d]", i)
		var route types.Route
		if err := json.Unmarshal(w, &route); err != nil || route.Dst.IP == nil {
			return cniplugin.ConfigError(path, cniplugin.RawValue(w), `must be a route such as {"dst": "10.0.0.0/8", "gw": "10.3.0.1"}`)
		}
		if err := cniplugin.CheckRoute(path, &route); err != nil {
			return err
		}
		*r = append(*r, &route)
	}
	return nil
}
