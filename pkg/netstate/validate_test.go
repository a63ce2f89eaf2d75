package netstate

import (
	"net/netip"
	"slices"
	"testing"
)

func TestInterfaceValidateNamesWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Interface)
		want   string
	}{
		"a macvlan over a VLAN over a bond": {func(*Interface) {}, ""},
		"a VLAN interface on a NIC":         {func(i *Interface) { *i = vlanPod() }, ""},
		"without addresses and routes":      {func(i *Interface) { i.Addresses, i.Routes = nil, nil }, ""},
		"on two VLANs": {func(i *Interface) {
			i.Parents = slices.Insert(i.Parents, 1, vlanDevice("bond4.100", service))
		}, ""},
		"the link": {func(i *Interface) { i.Link.Name = "a/b" },
			`link "a/b": contains '/', ':', white space or a control character`},
		"no parents": {func(i *Interface) { i.Parents = nil }, `link "eth0": no parents`},
		"a parent": {func(i *Interface) { i.Parents[0].VLAN = nil },
			`parent "bond4.3": kind "vlan" does not go with its attributes`},
		"a VLAN as base": {func(i *Interface) { i.Parents = i.Parents[:1] },
			`parent "bond4.3": a vlan at place 1 of 1: VLANs are stacked on one base`},
		"something between that is no VLAN": {func(i *Interface) { i.Parents[0] = nic("eth1", "", "") },
			`parent "eth1": a nic at place 1 of 2: VLANs are stacked on one base`},
		"anything goes in the sandbox": {func(i *Interface) {
			i.Parents, i.ParentsInSandbox = []Device{{Kind: KindMacvlan, Name: "net1"}, nic("eth0", "", "")}, true
		}, ""},
		"an address": {func(i *Interface) { i.Addresses[1].Prefix = netip.Prefix{} }, "an address without prefix"},
		"a route":    {func(i *Interface) { i.Routes[0].Destination = netip.Prefix{} }, "a route without destination"},
		"no gateway": {func(i *Interface) { i.Routes[0].Gateway = netip.Addr{} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			i := pod()
			test.change(&i)
			if got := message(i.Validate()); got != test.want {
				t.Errorf("Validate() = %q, want %q", got, test.want)
			}
		})
	}
}

func TestLinkValidateNamesWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Link)
		want   string
	}{
		"as captured":              {func(*Link) {}, ""},
		"to build, MAC and MTU":    {func(l *Link) { l.MAC, l.MTU, l.Index = "", 0, 0 }, ""},
		"mode private":             {func(l *Link) { l.Macvlan.Mode = "private" }, ""},
		"mode vepa":                {func(l *Link) { l.Macvlan.Mode = "vepa" }, ""},
		"mode passthru":            {func(l *Link) { l.Macvlan.Mode = "passthru" }, ""},
		"mode source":              {func(l *Link) { l.Macvlan.Mode = "source" }, ""},
		"no name":                  {func(l *Link) { l.Name = "" }, "is empty"},
		"MAC in capitals":          {func(l *Link) { l.MAC = "02:00:00:00:00:AA" }, `MAC address "02:00:00:00:00:AA" is not written as 02:00:00:00:00:aa`},
		"MAC of a group":           {func(l *Link) { l.MAC = "01:00:5e:00:00:01" }, `"01:00:5e:00:00:01" is a multicast address`},
		"macvlan without mode":     {func(l *Link) { l.Macvlan = nil }, `kind "macvlan" does not go with its attributes`},
		"macvlan with a VLAN":      {func(l *Link) { l.VLAN = &v3 }, `kind "macvlan" does not go with its attributes`},
		"VLAN with a mode":         {func(l *Link) { l.Kind = KindVLAN }, `kind "vlan" does not go with its attributes`},
		"VLAN without ID":          {func(l *Link) { l.Kind, l.Macvlan, l.VLAN = KindVLAN, nil, &VLAN{Protocol: Protocol8021Q} }, "VLAN ID 0 is not between 1 and 4094"},
		"a kind that is not built": {func(l *Link) { l.Kind, l.Macvlan = "veth", nil }, `unknown kind "veth"`},
		"no kind":                  {func(l *Link) { l.Kind, l.Macvlan = "", nil }, `unknown kind ""`},
	} {
		t.Run(name, func(t *testing.T) {
			l := pod().Link
			test.change(&l)
			if got := message(l.Validate()); got != test.want {
				t.Errorf("Validate() = %q, want %q", got, test.want)
			}
		})
	}
}

func TestDeviceValidateNamesWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		device Device
		want   string
	}{
		"NIC":                    {nic("eth1", "m1", "b1"), ""},
		"bond":                   {bond("bond4", member("eth1")), ""},
		"VLAN":                   {vlanDevice("eth1.3", v3), ""},
		"any other kind":         {Device{Kind: "team", Name: "team0"}, ""},
		"no name":                {Device{Kind: KindNIC}, "is empty"},
		"no kind":                {Device{Name: "eth1"}, "no kind"},
		"VLAN without ID":        {Device{Kind: KindVLAN, Name: "eth1.3"}, `kind "vlan" does not go with its attributes`},
		"bond without mode":      {Device{Kind: KindBond, Name: "bond4"}, `kind "bond" does not go with its attributes`},
		"NIC with a VLAN":        {Device{Kind: KindNIC, Name: "eth1", VLAN: &v3}, `kind "nic" does not go with its attributes`},
		"NIC with members":       {Device{Kind: KindNIC, Name: "eth1", Bond: &Bond{}}, `kind "nic" does not go with its attributes`},
		"VLAN out of bounds":     {vlanDevice("eth1.3", VLAN{ID: 4095, Protocol: Protocol8021Q}), "VLAN ID 4095 is not between 1 and 4094"},
		"a member without name":  {bond("bond4", member("eth1"), Member{}), `member "": is empty`},
		"a member with bad name": {bond("bond4", Member{Name: "eth 1"}), `member "eth 1": contains '/', ':', white space or a control character`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := message(test.device.Validate()); got != test.want {
				t.Errorf("Validate() = %q, want %q", got, test.want)
			}
		})
	}
}

func TestVLANValidate(t *testing.T) {
	for v, want := range map[VLAN]string{
		{1, "802.1q"}:     "",
		{4094, "802.1ad"}: "",
		{0, "802.1q"}:     "VLAN ID 0 is not between 1 and 4094",
		{-1, "802.1q"}:    "VLAN ID -1 is not between 1 and 4094",
		{4095, "802.1q"}:  "VLAN ID 4095 is not between 1 and 4094",
		{3, ""}:           `VLAN protocol "" is neither 802.1q nor 802.1ad`,
		{3, "802.1Q"}:     `VLAN protocol "802.1Q" is neither 802.1q nor 802.1ad`,
	} {
		if got := message(v.Validate()); got != want {
			t.Errorf("%+v: Validate() = %q, want %q", v, got, want)
		}
	}
}

func TestParseMAC(t *testing.T) {
	const form = " is not a MAC address: 6 bytes in the form 02:00:00:00:00:01 are needed"
	for in, test := range map[string]struct{ mac, err string }{
		"02:00:00:00:00:01":       {"02:00:00:00:00:01", ""},
		"02:00:00:00:00:AB":       {"02:00:00:00:00:ab", ""},
		"02-00-00-00-00-ab":       {"02:00:00:00:00:ab", ""},
		"0200.0000.00ab":          {"02:00:00:00:00:ab", ""},
		"":                        {"", `""` + form},
		"02:00:00:00:00":          {"", `"02:00:00:00:00"` + form},
		"02:00:00:00:00:0g":       {"", `"02:00:00:00:00:0g"` + form},
		" 02:00:00:00:00:01":      {"", `" 02:00:00:00:00:01"` + form},
		"02:00:00:00:00:00:00:01": {"", `"02:00:00:00:00:00:00:01"` + form},
		"01:00:5e:00:00:01":       {"", `"01:00:5e:00:00:01" is a multicast address`},
		"ff:ff:ff:ff:ff:ff":       {"", `"ff:ff:ff:ff:ff:ff" is a multicast address`},
		"00:00:00:00:00:00":       {"", `"00:00:00:00:00:00" is the zero address`},
	} {
		mac, err := ParseMAC(in)
		if mac != test.mac || message(err) != test.err {
			t.Errorf("ParseMAC(%q) = %q, %q, want %q, %q", in, mac, message(err), test.mac, test.err)
		}
	}
}

func TestSettingKeys(t *testing.T) {
	for key, want := range map[string]bool{
		"ipv4/arp_notify": true, "ipv6/neigh/gc_stale_time": true, "ipv6/mtu2": true, "ipv4/neigh_x": true,
		"": false, "ipv4/": false, "ipv4/neigh/": false, "ipv5/x": false, "ipv4": false, "x": false, "ipv4/../x": false, "ipv4/a/b": false,
		"ipv4/neigh/neigh/x": false, "ipv4/Upper": false, "ipv4/x\n": false, "ipv4/é": false, "ipv6/ipv4/x": false, "neigh/ipv4/x": false,
	} {
		if got := settingKey.MatchString(key); got != want {
			t.Errorf("settingKey matches %q = %v", key, got)
		}
	}
}
