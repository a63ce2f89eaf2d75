package netconf

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// FuzzVLAN shows that no configuration makes parse panic, that each error has a code, and that each accepted request
// can be built.
func FuzzVLAN(f *testing.F) {
	f.Add([]byte(`{"name": "mynet", "cniVersion": "0.3.1", "type": "vlan", "master": "eth0", "mtu": 1500, "vlanId": 5, "ipam": {"type": "static"}}`))
	f.Add([]byte(`{"master": ["bond4", "eth1"], "vlanId": 4094, "vlanProtocol": "802.1AD", "linkInContainer": true, "checkpointDir": "/x"}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		r, err := vlanOf(config, cniplugin.Args{})
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
		if len(r.Master) == 0 {
			t.Error("accepted without a master")
		}
	})
}
