package netconf

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
)

// vlanRequestFields is the request of a configuration, without the keys that are passed on.
type vlanRequestFields struct {
	Master          cniplugin.Names
	MTU             int
	LinkInContainer bool
	CheckpointDir   string
	VLAN            netstate.VLAN
}

func TestVLAN(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		want   vlanRequestFields
	}{
		"the documentation's example": {
			`{"name": "mynet", "cniVersion": "0.3.1", "type": "vlan", "master": "eth0", "mtu": 1500, "vlanId": 5,
			  "linkInContainer": false, "ipam": {"type": "host-local", "subnet": "10.1.1.0/24"}, "dns": {"nameservers": ["10.1.1.1"]}}`,
			vlanRequestFields{Master: cniplugin.Names{"eth0"}, MTU: 1500, VLAN: netstate.VLAN{ID: 5, Protocol: "802.1q"}},
		},
		"without an MTU, in the sandbox": {
			`{"master": "eth0", "vlanId": 4094, "linkInContainer": true}`,
			vlanRequestFields{Master: cniplugin.Names{"eth0"}, LinkInContainer: true, VLAN: netstate.VLAN{ID: 4094, Protocol: "802.1q"}},
		},
		"all keys of relink's own": {
			`{"master": ["bond4", "eth1"], "vlanId": 1, "vlanProtocol": "802.1AD", "checkpointDir": "/x"}`,
			vlanRequestFields{Master: cniplugin.Names{"bond4", "eth1"}, CheckpointDir: "/x", VLAN: netstate.VLAN{ID: 1, Protocol: "802.1ad"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := vlanOf([]byte(test.config), cniplugin.Args{MAC: "for others"})
			if err != nil {
				t.Fatal(err)
			}
			got := vlanRequestFields{r.Master, r.MTU, r.LinkInContainer, r.CheckpointDir, *r.Link.VLAN}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want := (netstate.Link{Kind: netstate.KindVLAN, VLAN: &test.want.VLAN}); !cmp.Equal(want, r.Link) || r.VLAN != nil {
				t.Errorf("link %+v on %+v, want %+v on the master itself", r.Link, r.VLAN, want)
			}
		})
	}
}

func TestVLANSaysWhichKeyIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		code   uint
		want   string
	}{
		"no JSON":     {`{`, 6, "network configuration: is no JSON: it ends too early: a quotation mark or a bracket is missing"},
		"ID a string": {`{"master": "eth0", "vlanId": "5"}`, 7, `invalid "vlanId": "5": must be a whole number, without quotation marks`},
		"no master":   {`{"vlanId": 5}`, 7, `invalid "master": missing: must name the device to put the VLAN on`},
		"empty one":   {`{"master": "", "vlanId": 5}`, 7, `invalid "master": missing: must name the device to put the VLAN on`},
		"MTU":         {`{"master": "eth0", "vlanId": 5, "mtu": 67}`, 7, `invalid "mtu": 67: must be 0 (the master's MTU) or at least 68`},
		"no ID":       {`{"master": "eth0"}`, 7, `invalid "vlanId": missing: must be the VLAN's ID, between 1 and 4094`},
		"ID negative": {`{"master": "eth0", "vlanId": -1}`, 7, `invalid "vlanId": -1: must be between 1 and 4094`},
		"ID too high": {`{"master": "eth0", "vlanId": 4095}`, 7, `invalid "vlanId": 4095: must be between 1 and 4094`},
		"protocol":    {`{"master": "eth0", "vlanId": 5, "vlanProtocol": "qinq"}`, 7, `invalid "vlanProtocol": "qinq": must be 802.1q or 802.1ad`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := vlanOf([]byte(test.config), cniplugin.Args{})
			var coded *types.Error
			if !errors.As(err, &coded) || coded.Code != test.code || coded.Msg != test.want {
				t.Errorf("vlanOf(%s) = %+v, want code %d, %s", test.config, err, test.code, test.want)
			}
		})
	}
}
