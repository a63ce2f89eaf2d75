package netconf

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// FuzzMacvlan shows that no configuration makes parse panic, that each error has a code, and that each accepted request
// can be built.
func FuzzMacvlan(f *testing.F) {
	f.Add([]byte(`{"name": "mynet", "type": "macvlan", "master": "eth0", "linkInContainer": false, "ipam": {"type": "dhcp"}}`), "")
	f.Add([]byte(`{"master": ["bond4", "eth1"], "mode": "private", "mtu": 1400, "bcqueuelen": 5000, "vlan": 3, "vlanProtocol": "802.1ad", "vlanName": "s"}`), "")
	f.Add([]byte(`{"mac": "02-00-00-00-00-AB", "runtimeConfig": {"mac": ""}}`), "0200.0000.0001")
	f.Fuzz(func(t *testing.T, config []byte, mac string) {
		r, err := macvlanOf(config, cniplugin.Args{MAC: mac})
		if err != nil {
			if coded := (*types.Error)(nil); !errors.As(err, &coded) || coded.Code == 0 {
				t.Errorf("%v has no code", err)
			}
			return
		}
		r.Link.Name = "eth0"
		if err := r.Link.Validate(); err != nil {
			t.Errorf("accepted, but the link can't be built: %v", err)
		}
		if r.VLAN != nil {
			if err := r.VLAN.Validate(); err != nil {
				t.Errorf("accepted, but the VLAN parent can't be built: %v", err)
			}
		}
	})
}
