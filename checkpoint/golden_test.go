package checkpoint

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/netstate"
)

var update = flag.Bool("update", false, "write testdata/v1 anew: only before a version is released")

const goldenDir = "testdata"

// golden has stored records by the name of their file. relink must read them for ever.
func golden() map[string]Record {
	return map[string]Record{
		"v1/macvlan-on-vlan-on-bond.json": dualStack(),
		"v1/vlan-on-nic.json":             vlanOnNIC(),
		"v1/layer-2-only.json":            layer2(),
		"v1/link-in-container.json":       linkInContainer(),
		"v1/stacked-vlans.json":           stackedVLANs(),
		"v1/ipvlan.json":                  onIPvlan(),
		"v1/host-device.json":             hostDevice(),
		"v1/routes-of-others.json":        routesOfOthers(),
		"v1/everything.json":              withLifetimes(withHostAccess(withOwner(fullRecord()))),
	}
}

const sandboxID = "0f5b1c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b"

func route(destination, gateway string) netstate.Route {
	r := netstate.Route{Destination: netip.MustParsePrefix(destination), Table: 254, Protocol: 3, Type: 1}
	if gateway != "" {
		r.Gateway = netip.MustParseAddr(gateway)
	}
	return r
}

// withOwner returns the record of a pod of a StatefulSet.
func withOwner(r Record) Record {
	r.Owner = attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: r.Pod.Namespace, Name: "db", UID: "7e1f", Ordinal: attachment.OrdinalOf(0)}
	return r
}

// withHostAccess returns the record of a pod that its node reaches.
func withHostAccess(r Record) Record {
	r.HostAccess = &hostaccess.Access{
		Options: hostaccess.Options{
			Name: "host0", Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}, Extra: []netip.Prefix{netip.MustParsePrefix("169.254.20.10/32")},
			PreserveSource: true, Mark: hostaccess.DefaultMark, Masquerade: true,
		},
		HostName: hostaccess.HostName(r.Attachment, true), MAC: "02:00:00:00:00:99", MTU: 1500,
		Alias:     `{"pod":"default/web-0","network":"pods","container":"` + sandboxID + `","interface":"eth0"}`,
		Addresses: []netip.Addr{netip.MustParseAddr("10.3.0.5"), netip.MustParseAddr("fd00:3::5")},
	}
	return r
}

// withLifetimes returns the record of a pod with a DHCP client, on a parent with another one.
func withLifetimes(r Record) Record {
	for _, addresses := range [][]netstate.Address{r.Interface.Addresses, r.Interface.Parents[0].Carried.Addresses} {
		addresses[0].ValidUntil, addresses[0].PreferredUntil = 100600, 100300
	}
	return r
}

func dualStack() Record {
	r := podRecord(sandboxID, "eth0", "default", "web-0")
	r.Namespace.Cookie = 4098
	r.Interface.Link.Macvlan.BCQueueLen = 1000
	r.Interface.Parents = []netstate.Device{vlanDevice("bond4.3", 3), bondDevice("bond4")}
	r.Interface.Addresses = []netstate.Address{
		{Prefix: netip.MustParsePrefix("10.3.0.5/24"), Broadcast: netip.MustParseAddr("10.3.0.255"), Label: "eth0", Flags: 0x80},
		{Prefix: netip.MustParsePrefix("10.3.0.6/32"), Peer: netip.MustParsePrefix("10.3.0.9/32"), Scope: 253},
		{Prefix: netip.MustParsePrefix("fd00:3::5/64"), Flags: 0x82},
	}
	linkScope := route("10.4.0.0/16", "")
	linkScope.Scope, linkScope.Source = 253, netip.MustParseAddr("10.3.0.5")
	policy := route("10.5.0.0/16", "10.3.0.2")
	policy.Table, policy.Priority, policy.TOS, policy.OnLink, policy.Protocol = 100, 50, 8, true, 4
	sized := route("fd00:5::/48", "fd00:3::2")
	sized.Priority, sized.MTU, sized.AdvMSS = 1024, 1400, 1340
	blackhole := route("10.6.0.0/16", "")
	blackhole.Type = 6
	r.Interface.Routes = []netstate.Route{
		route("0.0.0.0/0", "10.3.0.1"), route("::/0", "fd00:3::1"), linkScope, policy, sized, blackhole,
	}
	r.Interface.Settings = map[string]string{"ipv4/arp_notify": "1", "ipv6/accept_dad": "0"}
	r.CNI.Config = json.RawMessage(`{"cniVersion":"1.1.0","name":"pods","type":"relink-macvlan","master":"bond4","vlan":3,` +
		`"ipam":{"type":"static","addresses":[{"address":"10.3.0.5/24","gateway":"10.3.0.1"}]},"note":"a<b & ü"}`)
	r.CNI.Result = json.RawMessage(`{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mtu":1500}],"ips":[],"dns":{}}`)
	return r
}

func vlanOnNIC() Record {
	r := record("cnitool-77383ca0a0715733ca6f", "net1")
	r.Interface.Link.Kind, r.Interface.Link.Macvlan, r.Interface.Link.VLAN = netstate.KindVLAN, nil, vlan(4094)
	r.Interface.Addresses = []netstate.Address{{Prefix: netip.MustParsePrefix("192.0.2.7/31")}}
	r.Writer = "relink-vlan"
	return r
}

func layer2() Record {
	r := podRecord(sandboxID, "net1", "vms", "virt-launcher-db")
	r.Interface.Link.Macvlan.Mode, r.Interface.Link.Up = "passthru", false
	r.Interface.Parents = []netstate.Device{{Kind: "team", Name: "team0", MTU: 1500}}
	return r
}

func linkInContainer() Record {
	r := podRecord(sandboxID, "net2", "default", "router")
	r.Interface.ParentsInSandbox = true
	r.Interface.Parents = []netstate.Device{
		{Kind: netstate.KindMacvlan, Name: "net1", MAC: "02:00:00:00:00:06", MTU: 1500}, nicDevice("eth1", eth1),
	}
	return r
}

func stackedVLANs() Record {
	r := record(sandboxID, "net3")
	outer := vlanDevice("eth1.100", 100)
	outer.VLAN.Protocol = netstate.Protocol8021AD
	r.Interface.Parents = []netstate.Device{vlanDevice("customer7", 7), outer, nicDevice("eth1", eth1)}
	return r
}

func readGolden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(goldenDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestStoredRecordsAreReadAndWrittenAsTheyWere(t *testing.T) {
	for name, want := range golden() {
		t.Run(name, func(t *testing.T) {
			if *update {
				writeGolden(t, name, want)
			}
			stored := readGolden(t, name)
			r, err := Decode(stored)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, r, sameRecord); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
			again, err := Encode(r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(stored), string(again)); diff != "" {
				t.Errorf("written again (-stored +written):\n%s", diff)
			}
		})
	}
}

func writeGolden(t *testing.T, name string, r Record) {
	t.Helper()
	b, err := Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(goldenDir, name), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEveryStoredRecordIsTested(t *testing.T) {
	var there, tested []string
	files, err := os.ReadDir(filepath.Join(goldenDir, "v1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		there = append(there, "v1/"+f.Name())
	}
	for name := range golden() {
		tested = append(tested, name)
	}
	slices.Sort(tested)
	if diff := cmp.Diff(tested, there); diff != "" {
		t.Errorf("%s (-tested +there):\n%s", goldenDir, diff)
	}
}
