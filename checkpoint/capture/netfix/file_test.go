package netfix

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

var comparable = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// written is a file in the form in which the tool writes it.
const written = `{"netns":"/proc/1234/ns/net","podname":"web-0","sandbox":"0123456789abcdef","ifname":"eth0","result":{"cniVersion":"0.4.0",
"interfaces":[{"name":"eth0","mac":"02:42:0A:03:00:05","sandbox":"/proc/1234/ns/net"}],
"ips":[{"version":"4","interface":0,"address":"10.3.0.5/24","gateway":"10.3.0.1"}],
"routes":[{"dst":"0.0.0.0/0"}],"dns":{}}}`

// edit returns the file with one part replaced.
func edit(t testing.TB, old, replacement string) string {
	t.Helper()
	if !strings.Contains(written, old) {
		t.Fatalf("the file has no %s", old)
	}
	return strings.Replace(written, old, replacement, 1)
}

func address(prefix, broadcast, label string) netstate.Address {
	a := netstate.Address{Prefix: netip.MustParsePrefix(prefix), Label: label}
	if broadcast != "" {
		a.Broadcast = netip.MustParseAddr(broadcast)
	}
	return a
}

func route(destination, gateway string, priority uint32) netstate.Route {
	r := netstate.Route{Destination: netip.MustParsePrefix(destination), Table: 254, Priority: priority, Protocol: 3, Type: 1}
	if gateway != "" {
		r.Gateway = netip.MustParseAddr(gateway)
	}
	return r
}

// parsed returns the content of written.
func parsed(change func(*File)) File {
	f := File{
		Netns: "/proc/1234/ns/net", PodName: "web-0", ContainerID: "0123456789abcdef", IfName: "eth0", MAC: "02:42:0a:03:00:05",
		Addresses: []netstate.Address{address("10.3.0.5/24", "10.3.0.255", "eth0")},
		Routes:    []netstate.Route{route("0.0.0.0/0", "10.3.0.1", 0)},
	}
	if change != nil {
		change(&f)
	}
	return f
}

func TestParse(t *testing.T) {
	unchanged := func(*File) {}
	for name, test := range map[string]struct {
		old, replacement string
		want             func(*File)
	}{
		"as it is written":         {`"eth0"`, `"eth0"`, unchanged},
		"no version":               {`"cniVersion":"0.4.0",`, ``, unchanged},
		"an older version":         {`"0.4.0"`, `"0.2.0"`, unchanged},
		"a newer version":          {`"0.4.0"`, `"1.1.0"`, unchanged},
		"no family":                {`"version":"4",`, ``, unchanged},
		"another family":           {`"version":"4"`, `"version":"6"`, unchanged}, // The address tells it.
		"no index":                 {`"interface":0,`, ``, unchanged},
		"no name in the interface": {`{"name":"eth0",`, `{`, unchanged},
		"more in the result":       {`"dns":{}`, `"dns":{},"colour":"red"`, unchanged},
		"another namespace":        {`"netns":"/proc/1234/ns/net"`, `"netns":"/var/run/docker/netns/1a2b"`, func(f *File) { f.Netns = "/var/run/docker/netns/1a2b" }},
		"a joined name":            {`"web-0"`, `"k8s_POD_web-0_shop_uid_0"`, func(f *File) { f.PodName = "k8s_POD_web-0_shop_uid_0" }},
		"no pod":                   {`"podname":"web-0",`, ``, func(f *File) { f.PodName = "" }},
		"no routes":                {`"routes":[{"dst":"0.0.0.0/0"}],`, ``, func(f *File) { f.Routes = nil }},
		"a route with a gateway":   {`{"dst":"0.0.0.0/0"}`, `{"dst":"10.9.1.1/8","gw":"10.3.0.9"}`, func(f *File) { f.Routes = []netstate.Route{route("10.0.0.0/8", "10.3.0.9", 0)} }},
		"two routes in one place":  {`{"dst":"0.0.0.0/0"}`, `{"dst":"0.0.0.0/0"},{"dst":"0.0.0.0/0","gw":"10.3.0.9"}`, unchanged},
		"a route of CNI 1.1": {`{"dst":"0.0.0.0/0"}`, `{"dst":"0.0.0.0/0","mtu":1400,"table":0,"priority":5}`,
			func(f *File) { f.Routes[0].MTU, f.Routes[0].Priority = 1400, 5 }},
		"a route without gateway": {`,"gateway":"10.3.0.1"`, ``, func(f *File) { f.Routes = []netstate.Route{route("0.0.0.0/0", "", 0)} }},
		"one host":                {`10.3.0.5/24`, `10.3.0.5/32`, func(f *File) { f.Addresses = []netstate.Address{address("10.3.0.5/32", "", "eth0")} }},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse([]byte(edit(t, test.old, test.replacement)))
			if err != nil {
				t.Fatal(err)
			}
			if !json.Valid(got.Result) {
				t.Errorf("result %s", got.Result)
			}
			if diff := cmp.Diff(parsed(test.want), got, comparable, cmpopts.IgnoreFields(File{}, "Result")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseOfIPv6(t *testing.T) {
	both := strings.NewReplacer(`"gateway":"10.3.0.1"}`, `"gateway":"10.3.0.1"},{"version":"6","address":"fd00:3::5/64","gateway":"fd00:3::1"}`,
		`{"dst":"0.0.0.0/0"}`, `{"dst":"0.0.0.0/0"},{"dst":"::/0"}`).Replace(written)
	got, err := Parse([]byte(both))
	if err != nil {
		t.Fatal(err)
	}
	want := parsed(func(f *File) {
		f.Addresses = append(f.Addresses, address("fd00:3::5/64", "", ""))
		f.Routes = append(f.Routes, route("::/0", "fd00:3::1", 1024))
	})
	if diff := cmp.Diff(want, got, comparable, cmpopts.IgnoreFields(File{}, "Result")); diff != "" {
		t.Error(diff)
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	const torn = "torn or no checkpoint of i40e_net_fix: "
	const noResult = `invalid "result": must be the CNI result of the attachment, with the pod's one interface and its MAC`
	for name, test := range map[string]struct {
		old, replacement, want string
	}{
		"an unknown key":      {`"podname"`, `"vlan":5,"podname"`, torn + `json: unknown field "vlan"`},
		"more behind":         {`"dns":{}}}`, `"dns":{}}}{}`, torn + "more follows after its end"},
		"a number for a name": {`"web-0"`, `7`, torn + "json: cannot unmarshal number into Go struct field File.podname of type string"},
		"no namespace":        {`"netns":"/proc/1234/ns/net",`, ``, `invalid "netns": "": must be the absolute path of the sandbox's network namespace`},
		"a relative path":     {`"netns":"/proc`, `"netns":"proc`, `invalid "netns": "proc/1234/ns/net": must be the absolute path`},
		"no container ID":     {`"0123456789abcdef"`, `""`, `invalid "sandbox" or "ifname": container ID "": is empty`},
		"a way out":           {`"0123456789abcdef"`, `"../../etc/passwd"`, `container ID "../../etc/passwd": must start with a letter or a digit`},
		"an interface's path": {`"ifname":"eth0"`, `"ifname":"../x"`, `interface name "../x": contains '/'`},
		"a hidden interface":  {`"ifname":"eth0"`, `"ifname":".x"`, `interface name ".x": a name that begins with a dot cannot be remembered`},
		"no result":           {`"result":{`, `"result":null,"x":{`, torn + `json: unknown field "x"`},
		"no MAC":              {`02:42:0A:03:00:05`, ``, `invalid "result.interfaces[0].mac": "": must be the interface's MAC: `},
		"no MAC address":      {`02:42:0A:03:00:05`, `02:42`, `invalid "result.interfaces[0].mac": "02:42": must be the interface's MAC: "02:42" is not a MAC address`},
		"a multicast MAC":     {`02:42:0A:03:00:05`, `01:42:0A:03:00:05`, `is a multicast address`},
		"no interface":        {`"interfaces":[{"name":"eth0","mac":"02:42:0A:03:00:05","sandbox":"/proc/1234/ns/net"}],`, ``, noResult},
		"interfaces no list":  {`[{"name":"eth0","mac":"02:42:0A:03:00:05","sandbox":"/proc/1234/ns/net"}]`, `{}`, torn + "result: "},
		"two interfaces":      {`[{"name":"eth0",`, `[{},{"name":"eth0",`, noResult},
		"interface null":      {`[{"name":"eth0","mac":"02:42:0A:03:00:05","sandbox":"/proc/1234/ns/net"}]`, `[null]`, noResult},
		"no prefix length":    {`10.3.0.5/24`, `10.3.0.5`, torn + "result: invalid CIDR address: 10.3.0.5"},
		"address null":        {`"address":"10.3.0.5/24"`, `"address":null`, torn + "result: invalid CIDR address: "},
		"a mapped address":    {`10.3.0.5/24`, `::ffff:10.3.0.5/120`, `result.ips: address 10.3.0.5/24`},
		"an index no number":  {`"interface":0`, `"interface":"0"`, torn + "result: "},
		"a gateway's number":  {`"gateway":"10.3.0.1"`, `"gateway":5`, torn + "result: "},
		"no gateway address":  {`"gateway":"10.3.0.1"`, `"gateway":"router"`, torn + "result: invalid IP address: router"},
		"no destination":      {`{"dst":"0.0.0.0/0"}`, `null`, noResult},
		"a route's gateway":   {`{"dst":"0.0.0.0/0"}`, `{"dst":"0.0.0.0/0","gw":"fe80::1%eth0"}`, torn + "result: invalid IP address: fe80::1%eth0"},
		"a route's family":    {`{"dst":"0.0.0.0/0"}`, `{"dst":"0.0.0.0/0","gw":"fd00::1"}`, `result.routes: route to 0.0.0.0/0: invalid "gw": "fd00::1"`},
		"a route's MTU":       {`{"dst":"0.0.0.0/0"}`, `{"dst":"0.0.0.0/0","mtu":-1}`, `result.routes: route to 0.0.0.0/0: invalid "mtu": -1`},
		"result a list":       {`"dns":{}}}`, `"dns":[]}`, torn},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Parse([]byte(edit(t, test.old, test.replacement)))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Parse() = %+v, %v, want %q", f, err, test.want)
			}
		})
	}
}

func TestParseOfWhatIsNoFileOfTheTool(t *testing.T) {
	const torn = "torn or no checkpoint of i40e_net_fix: "
	for content, want := range map[string]string{
		"": torn + "EOF", "null": `invalid "netns"`, "[]": torn, "7": torn, "{}": `invalid "netns": ""`, "\x00\x00": torn,
		`{"netns":"/n","sandbox":"c","ifname":"eth0"}`:               torn + "result: ",
		`{"netns":"/n","sandbox":"c","ifname":"eth0","result":null}`: `invalid "result": must be the CNI result`,
		`{"netns":"/n","sandbox":"c","ifname":"eth0","result":[]}`:   torn + "result: ",
		`{"netns":"/n","sandbox":"c","ifname":"eth0","result":"x"}`:  torn + "result: ",
	} {
		if f, err := Parse([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %+v, %v, want %q", content, f, err, want)
		}
	}
	for n := range len(written) - 1 {
		if f, err := Parse([]byte(written[:n])); err == nil || !strings.HasPrefix(err.Error(), torn) {
			t.Fatalf("the first %d bytes: %+v, %v", n, f, err)
		}
	}
}

func TestPodIsNamedWhereTheNameCanBeOne(t *testing.T) {
	for name, want := range map[string]attachment.Pod{
		"web-0": {Name: "web-0"}, "a.b": {Name: "a.b"}, "7": {Name: "7"},
		"": {}, "shop/web-0": {}, "k8s_POD_web-0_shop_uid_0": {}, "/web": {}, "Web": {}, "-web": {}, "web-": {}, "a..b": {}, "web\n": {},
		strings.Repeat("a", 254): {},
	} {
		if got := (File{PodName: name}).Pod(); got != want {
			t.Errorf("%q: %+v, want %+v", name, got, want)
		}
	}
}

func TestReadDirRefusesOtherNames(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]bool{
		"0123456789ab": true, "0123456789abcdef": true, "0123456789abc": true,
		"0123456789a": false, "0123456789ab.bak": false, "fedcba987654": false,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(written), 0o600); err != nil {
			t.Fatal(err)
		}
		files, err := ReadDir(dir)
		if err != nil || len(files) != 1 || (files[0].Err == nil) != want || files[0].Path != filepath.Join(dir, name) {
			t.Errorf("%s: %+v, %v", name, files, err)
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "short"), []byte(edit(t, "0123456789abcdef", "short")), 0o600); err != nil {
		t.Fatal(err)
	}
	if files, err := ReadDir(dir); err != nil || len(files) != 1 || files[0].Err != nil {
		t.Error(files, err)
	}
}
