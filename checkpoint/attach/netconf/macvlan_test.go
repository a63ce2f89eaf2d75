package netconf

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
)

// requestFields is the request of a configuration, without the keys that are passed on.
type requestFields struct {
	Master          cniplugin.Names
	MTU             int
	LinkInContainer bool
	CheckpointDir   string
	IPAM            string
	MAC             string
	Mode            string
	Queue           uint32
	VLAN            *ParentVLAN
}

func fieldsOf(r Request) requestFields {
	return requestFields{
		Master: r.Master, MTU: r.MTU, LinkInContainer: r.LinkInContainer, CheckpointDir: r.CheckpointDir, IPAM: r.IPAM.Type,
		MAC: r.Link.MAC, Mode: r.Link.Macvlan.Mode, Queue: r.Link.Macvlan.BCQueueLen, VLAN: r.VLAN,
	}
}

func parentVLAN(id int, protocol, name string) *ParentVLAN {
	return &ParentVLAN{VLAN: netstate.VLAN{ID: id, Protocol: protocol}, Name: name}
}

func TestMacvlanTakesWhatTheReferencePluginDoes(t *testing.T) {
	for name, test := range map[string]struct {
		config string
		want   requestFields
	}{
		"the documentation's example": {
			`{"name": "mynet", "type": "macvlan", "master": "eth0", "linkInContainer": false, "ipam": {"type": "dhcp"}}`,
			requestFields{Master: cniplugin.Names{"eth0"}, Mode: "bridge", IPAM: "dhcp"},
		},
		"nothing but what is required": {
			`{"cniVersion": "1.0.0", "name": "mynet", "type": "macvlan"}`, requestFields{Mode: "bridge"},
		},
		"all its keys": {
			`{"name": "mynet", "master": "eth0", "mode": "private", "mtu": 1400, "mac": "02-00-00-00-00-AB", "bcqueuelen": 5000, "linkInContainer": true}`,
			requestFields{Master: cniplugin.Names{"eth0"}, Mode: "private", MTU: 1400, MAC: "02:00:00:00:00:ab", Queue: 5000, LinkInContainer: true},
		},
		"layer 2, with what others read": {
			`{"name": "mynet", "master": "eth0", "mode": "passthru", "ipam": {}, "capabilities": {"mac": true}, "prevResult": {"ips": []}}`,
			requestFields{Master: cniplugin.Names{"eth0"}, Mode: "passthru"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := macvlanOf([]byte(test.config), cniplugin.Args{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, fieldsOf(r)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			want := netstate.Link{Kind: netstate.KindMacvlan, MAC: test.want.MAC, Macvlan: &netstate.Macvlan{Mode: test.want.Mode, BCQueueLen: test.want.Queue}}
			if diff := cmp.Diff(want, r.Link); diff != "" {
				t.Errorf("link (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMacvlanTakesTheKeysForAVLAN(t *testing.T) {
	for config, want := range map[string]requestFields{
		`{"master": "bond4", "vlan": 3}`: {
			Master: cniplugin.Names{"bond4"}, Mode: "bridge", VLAN: parentVLAN(3, "802.1q", ""),
		},
		`{"master": ["bond4", "eth1"], "vlan": 4094, "vlanProtocol": "802.1AD", "vlanName": "service", "checkpointDir": "/x"}`: {
			Master: cniplugin.Names{"bond4", "eth1"}, Mode: "bridge", VLAN: parentVLAN(4094, "802.1ad", "service"), CheckpointDir: "/x",
		},
		`{"vlan": 1, "vlanProtocol": "802.1q"}`: {Mode: "bridge", VLAN: parentVLAN(1, "802.1q", "")},
		`{"vlan": null}`:                        {Mode: "bridge"},
	} {
		r, err := macvlanOf([]byte(config), cniplugin.Args{})
		if err != nil {
			t.Errorf("%s: %v", config, err)
			continue
		}
		if diff := cmp.Diff(want, fieldsOf(r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", config, diff)
		}
	}
}

func TestMacvlanTakesTheRuntimesMACBeforeThatOfCNIArgsBeforeTheConfigurations(t *testing.T) {
	const runtime, args, key = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"
	for _, test := range []struct{ runtime, args, key, want string }{
		{runtime, args, key, runtime},
		{runtime, "", key, runtime},
		{runtime, "", "", runtime},
		{"", args, key, args},
		{"", args, "", args},
		{"", "", key, key},
		{"", "", "", ""},
		{"02-00-00-00-00-0A", "", "", "02:00:00:00:00:0a"},
		{"", "0200.0000.000B", "", "02:00:00:00:00:0b"},
	} {
		config := `{"mac": "` + test.key + `", "runtimeConfig": {"mac": "` + test.runtime + `"}}`
		r, err := macvlanOf([]byte(config), cniplugin.Args{MAC: test.args})
		if err != nil || r.Link.MAC != test.want {
			t.Errorf("%+v: MAC %q, %v", test, r.Link.MAC, err)
		}
	}
}

func TestMacvlanSaysWhichKeyIsWrong(t *testing.T) {
	const (
		notMAC    = ": must be the MAC address of one device: 6 bytes such as 02:00:00:00:00:01, neither zero nor multicast"
		character = "contains '/', ':', white space or a control character"
	)
	for name, test := range map[string]struct {
		config, mac string
		code        uint
		want        string
	}{
		"no JSON":              {`{`, "", 6, "network configuration: is no JSON: it ends too early: a quotation mark or a bracket is missing"},
		"queue negative":       {`{"bcqueuelen": -1}`, "", 7, `invalid "bcqueuelen": -1: must be a whole number from 0 to 4294967295`},
		"VLAN a string":        {`{"vlan": "3"}`, "", 7, `invalid "vlan": "3": must be a whole number, without quotation marks`},
		"MAC a number":         {`{"runtimeConfig": {"mac": 2}}`, "", 7, `invalid "runtimeConfig.mac": 2: must be a string: put it in quotation marks`},
		"no master":            {`{"master": []}`, "", 7, `invalid "master": []: must name at least one device; leave it out for the default route's device`},
		"MTU":                  {`{"mtu": 67}`, "", 7, `invalid "mtu": 67: must be 0 (the master's MTU) or at least 68`},
		"mode":                 {`{"mode": "source"}`, "", 7, `invalid "mode": "source": must be one of bridge, private, vepa, passthru`},
		"mode in capitals":     {`{"mode": "Bridge"}`, "", 7, `invalid "mode": "Bridge": must be one of bridge, private, vepa, passthru`},
		"mac":                  {`{"mac": "x"}`, "", 7, `invalid "mac": "x"` + notMAC},
		"mac of a group":       {`{"mac": "01:00:5e:00:00:01"}`, "", 7, `invalid "mac": "01:00:5e:00:00:01"` + notMAC},
		"the runtime's MAC":    {`{"runtimeConfig": {"mac": "x"}}`, "02:00:00:00:00:01", 7, `invalid "runtimeConfig.mac": "x"` + notMAC},
		"that of CNI_ARGS":     {`{"mac": "02:00:00:00:00:01"}`, "x", 4, `invalid CNI_ARGS: "MAC=x"` + notMAC},
		"VLAN 0":               {`{"vlan": 0}`, "", 7, `invalid "vlan": 0: must be between 1 and 4094`},
		"VLAN 4095":            {`{"vlan": 4095}`, "", 7, `invalid "vlan": 4095: must be between 1 and 4094`},
		"VLAN inside":          {`{"vlan": 3, "linkInContainer": true}`, "", 7, `invalid "vlan": 3: does not go with linkInContainer: the VLAN device is made on the host`},
		"its protocol":         {`{"vlan": 3, "vlanProtocol": "qinq"}`, "", 7, `invalid "vlanProtocol": "qinq": must be 802.1q or 802.1ad`},
		"its name":             {`{"vlan": 3, "vlanName": "sixteen-letters-"}`, "", 7, `invalid "vlanName": "sixteen-letters-": has 16 characters, the kernel allows 15`},
		"VLAN no whole number": {`{"vlan": 3.5}`, "", 7, `invalid "vlan": 3.5: must be a whole number`},
		"MTU of 20":            {`{"mtu": 20}`, "", 7, `invalid "mtu": 20: must be 0 (the master's MTU) or at least 68`},
		"half a MAC":           {`{"mac": "02:00:zz"}`, "", 7, `invalid "mac": "02:00:zz"` + notMAC},
		"the runtime's, of a group": {`{"runtimeConfig": {"mac": "01:00:00:00:00:01"}}`, "", 7,
			`invalid "runtimeConfig.mac": "01:00:00:00:00:01"` + notMAC},
		"master a number":        {`{"master": 5}`, "", 7, `invalid "master": 5: must be a device's name or a list of them`},
		"a protocol of Wi-Fi":    {`{"vlan": 3, "vlanProtocol": "802.1x"}`, "", 7, `invalid "vlanProtocol": "802.1x": must be 802.1q or 802.1ad`},
		"its name, with a dot":   {`{"vlan": 3, "vlanName": "sixteen.letters."}`, "", 7, `invalid "vlanName": "sixteen.letters.": has 16 characters, the kernel allows 15`},
		"its name, with a slash": {`{"vlan": 3, "vlanName": "sixteen/letters"}`, "", 7, `invalid "vlanName": "sixteen/letters": ` + character},
		"a protocol of no VLAN": {`{"vlanProtocol": "802.1q"}`, "", 7,
			`invalid "vlan": missing: vlanProtocol and vlanName need the ID of a VLAN`},
		"a name of no VLAN": {`{"vlanName": "pods"}`, "", 7,
			`invalid "vlan": missing: vlanProtocol and vlanName need the ID of a VLAN`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := macvlanOf([]byte(test.config), cniplugin.Args{MAC: test.mac})
			var coded *types.Error
			if !errors.As(err, &coded) || coded.Code != test.code || coded.Msg != test.want {
				t.Errorf("macvlanOf(%s) = %+v, want code %d, %s", test.config, err, test.code, test.want)
			}
		})
	}
}
