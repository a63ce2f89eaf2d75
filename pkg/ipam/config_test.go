package ipam

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// configured is everything that a configuration says.
type configured struct {
	network
	name, dataDir string
	detection     *Detection
}

// parse reads a whole configuration, as an ADD does.
func parse(b []byte, env cniplugin.Args) (configured, error) {
	var n cniplugin.Network
	if err := cniplugin.FirstError(NetworkKeys.Decode("", b, &n)); err != nil {
		return configured{}, err
	}
	s, errs := readSection(n)
	if err := cniplugin.FirstError(errs); err != nil {
		return configured{}, err
	}
	c := configured{name: n.Name, dataDir: s.DataDir}
	c.network = s.parse(n, env, &errs)
	c.detection = c.network.detection
	return c, cniplugin.FirstError(errs)
}

// parsed returns the result of a configuration as readable text. It has a line for each range: "number of its set: span
// in subnet via gateway".
func parsed(n configured) string {
	var lines []string
	for i, set := range n.sets {
		for _, r := range set {
			lines = append(lines, strings.TrimSpace(string(rune('0'+i))+": "+r.String()+" in "+r.Subnet.String()+" via "+r.Gateway.String()))
		}
	}
	return strings.Join(lines, "\n")
}

// parseIPAM parses a configuration with "ipam": {ipam}. more are the keys beside "ipam".
func parseIPAM(ipam, more string) (configured, error) {
	return parse([]byte(`{"cniVersion": "1.1.0", "name": "pods", "ipam": {`+ipam+`}`+more+`}`), cniplugin.Args{})
}

func TestRangesAreHostLocals(t *testing.T) {
	for name, test := range map[string]struct{ ipam, more, want string }{
		"a subnet alone": {`"subnet": "10.3.0.0/24"`, "",
			"0: 10.3.0.1-10.3.0.254 in 10.3.0.0/24 via 10.3.0.1"},
		"all of its keys": {`"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.9", "rangeEnd": "10.3.0.20", "gateway": "10.3.0.30"`, "",
			"0: 10.3.0.9-10.3.0.20 in 10.3.0.0/24 via 10.3.0.30"},
		"the network's and the broadcast address, if they are written": {`"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.0", "rangeEnd": "10.3.0.255"`, "",
			"0: 10.3.0.0-10.3.0.255 in 10.3.0.0/24 via 10.3.0.1"},
		"one address": {`"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.9", "rangeEnd": "10.3.0.9"`, "",
			"0: 10.3.0.9 in 10.3.0.0/24 via 10.3.0.1"},
		"the smallest subnets": {`"ranges": [[{"subnet": "10.3.0.4/30"}], [{"subnet": "2001:db8::4/126"}]]`, "",
			"0: 10.3.0.5-10.3.0.6 in 10.3.0.4/30 via 10.3.0.5\n1: 2001:db8::5-2001:db8::7 in 2001:db8::4/126 via 2001:db8::5"},
		"IPv6 has no broadcast address": {`"subnet": "2001:db8::/64"`, "",
			"0: 2001:db8::1-2001:db8::ffff:ffff:ffff:ffff in 2001:db8::/64 via 2001:db8::1"},
		"half of each family": {`"ranges": [[{"subnet": "128.0.0.0/1"}], [{"subnet": "2000::/3"}]]`, "",
			"0: 128.0.0.1-255.255.255.254 in 128.0.0.0/1 via 128.0.0.1\n1: 2000::1-3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff in 2000::/3 via 2000::1"},
		"an eighth of a byte": {`"ranges": [[{"subnet": "10.3.0.32/27"}], [{"subnet": "2000::/8"}]]`, "",
			"0: 10.3.0.33-10.3.0.62 in 10.3.0.32/27 via 10.3.0.33\n1: 2000::1-20ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff in 2000::/8 via 2000::1"},
		"all of IPv4": {`"subnet": "0.0.0.0/0"`, "",
			"0: 0.0.0.1-255.255.255.254 in 0.0.0.0/0 via 0.0.0.1"},
		"a gateway on every link": {`"ranges": [[{"subnet": "2001:db8::/64", "gateway": "fe80::1"}], [{"subnet": "10.3.0.0/24", "gateway": "169.254.1.1"}]]`, "",
			"0: 2001:db8::1-2001:db8::ffff:ffff:ffff:ffff in 2001:db8::/64 via fe80::1\n1: 10.3.0.1-10.3.0.254 in 10.3.0.0/24 via 169.254.1.1"},
		"several ranges in a set": {`"ranges": [[{"subnet": "10.3.0.0/24", "rangeEnd": "10.3.0.9"}, {"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.10"}, {"subnet": "10.4.0.0/24"}]]`, "",
			"0: 10.3.0.1-10.3.0.9 in 10.3.0.0/24 via 10.3.0.1\n0: 10.3.0.10-10.3.0.254 in 10.3.0.0/24 via 10.3.0.1\n0: 10.4.0.1-10.4.0.254 in 10.4.0.0/24 via 10.4.0.1"},
		"the runtime's first, then the flat one": {`"subnet": "10.3.0.0/24", "ranges": [[{"subnet": "10.4.0.0/24"}]]`, `, "runtimeConfig": {"ipRanges": [[{"subnet": "10.5.0.0/24"}], [{"subnet": "10.6.0.0/24"}]]}`,
			"0: 10.5.0.1-10.5.0.254 in 10.5.0.0/24 via 10.5.0.1\n1: 10.6.0.1-10.6.0.254 in 10.6.0.0/24 via 10.6.0.1\n2: 10.3.0.1-10.3.0.254 in 10.3.0.0/24 via 10.3.0.1\n3: 10.4.0.1-10.4.0.254 in 10.4.0.0/24 via 10.4.0.1"},
		"the runtime's alone": {``, `, "runtimeConfig": {"ipRanges": [[{"subnet": "10.5.0.0/24"}]]}`,
			"0: 10.5.0.1-10.5.0.254 in 10.5.0.0/24 via 10.5.0.1"},
		"flat keys without a subnet are none": {`"rangeStart": "10.9.0.9", "gateway": "10.9.0.1", "ranges": [[{"subnet": "10.4.0.0/24"}]]`, "",
			"0: 10.4.0.1-10.4.0.254 in 10.4.0.0/24 via 10.4.0.1"},
		"IPv4 written as IPv6 does": {`"subnet": "10.3.0.0/24", "rangeStart": "::ffff:10.3.0.9", "gateway": "::ffff:10.3.0.8"`, "",
			"0: 10.3.0.9-10.3.0.254 in 10.3.0.0/24 via 10.3.0.8"},
		"null is like nothing": {`"subnet": "10.3.0.0/24", "rangeStart": null, "rangeEnd": null, "gateway": null, "ranges": null, "routes": null, "dataDir": null, "resolvConf": null, "exclude": null, "sticky": null, "retain": null, "quarantine": null, "conflictDetection": null`, `, "runtimeConfig": null, "args": null`,
			"0: 10.3.0.1-10.3.0.254 in 10.3.0.0/24 via 10.3.0.1"},
		"null further in": {`"subnet": "10.3.0.0/24"`, `, "runtimeConfig": {"ipRanges": null, "ips": null}, "args": {"cni": null}, "prevResult": null`,
			"0: 10.3.0.1-10.3.0.254 in 10.3.0.0/24 via 10.3.0.1"},
		"keys of others": {`"subnet": "10.3.0.0/24", "type": "relink-ipam", "ours": {"not": 1}`, `, "type": "macvlan", "master": 7`,
			"0: 10.3.0.1-10.3.0.254 in 10.3.0.0/24 via 10.3.0.1"},
	} {
		n, err := parseIPAM(test.ipam, test.more)
		if diff := cmp.Diff(test.want, parsed(n)); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestWhatIsWrongWithTheRangesAndWhatToDo(t *testing.T) {
	const network = "must be a network such as 10.3.0.0/24"
	for name, test := range map[string]struct{ ipam, more, want string }{
		"no range":           {``, ``, `"ipam.ranges": missing: must have a range of addresses to give, such as [[{"subnet": "10.3.0.0/24"}]]`},
		"no sets":            {`"ranges": []`, ``, `"ipam.ranges": missing: must have a range of addresses to give, such as [[{"subnet": "10.3.0.0/24"}]]`},
		"a set of no ranges": {`"ranges": [[{"subnet": "10.3.0.0/24"}], []]`, ``, `"ipam.ranges[1]": []: must have at least one range, such as {"subnet": "10.3.0.0/24"}`},
		"a set that is null": {`"ranges": [null]`, ``, `"ipam.ranges[0]": []: must have at least one range, such as {"subnet": "10.3.0.0/24"}`},
		"flat, no subnet":    {`"rangeStart": "10.3.0.9"`, ``, `"ipam.subnet": missing: rangeStart, rangeEnd and gateway need a subnet`},
		"no subnet":          {`"ranges": [[{"rangeStart": "10.3.0.9"}]]`, ``, `"ipam.ranges[0][0].subnet": missing: ` + network},
		"a range of null":    {`"ranges": [[null]]`, ``, `"ipam.ranges[0][0].subnet": missing: ` + network},
		"no subnet at all":   {`"subnet": "pods"`, ``, `"ipam.subnet": "pods": ` + network},
		"an address":         {`"subnet": "10.3.0.0"`, ``, `"ipam.subnet": "10.3.0.0": ` + network},
		"IPv4 as IPv6":       {`"subnet": "::ffff:10.3.0.0/120"`, ``, `"ipam.subnet": "::ffff:10.3.0.0/120": ` + network},
		"IPv4 within IPv6":   {`"subnet": "::/64"`, ``, `"ipam.subnet": "::/64": must not have addresses of IPv4 in it: ::ffff:0.0.0.0-::ffff:255.255.255.255`},
		"host bits":          {`"subnet": "10.3.0.7/24"`, ``, `"ipam.subnet": "10.3.0.7/24": has bits set beyond its length: the network is 10.3.0.0/24`},
		"host bits of IPv6":  {`"subnet": "2001:db8::1/64"`, ``, `"ipam.subnet": "2001:db8::1/64": has bits set beyond its length: the network is 2001:db8::/64`},
		"/31":                {`"subnet": "10.3.0.0/31"`, ``, `"ipam.subnet": "10.3.0.0/31": is too small: it has no address to give`},
		"/32":                {`"subnet": "10.3.0.0/32"`, ``, `"ipam.subnet": "10.3.0.0/32": is too small: it has no address to give`},
		"/127":               {`"subnet": "2001:db8::/127"`, ``, `"ipam.subnet": "2001:db8::/127": is too small: it has no address to give`},
		"start no address":   {`"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.0/24"`, ``, `"ipam.rangeStart": "10.3.0.0/24": must be an IP address`},
		"start with a zone":  {`"subnet": "fe80::/64", "rangeStart": "fe80::9%eth0"`, ``, `"ipam.rangeStart": "fe80::9%eth0": must be an IP address`},
		"start before":       {`"subnet": "10.3.0.0/24", "rangeStart": "10.2.255.255"`, ``, `"ipam.rangeStart": "10.2.255.255": must be in the subnet 10.3.0.0/24`},
		"end after":          {`"subnet": "10.3.0.0/24", "rangeEnd": "10.3.1.0"`, ``, `"ipam.rangeEnd": "10.3.1.0": must be in the subnet 10.3.0.0/24`},
		"start of IPv6":      {`"subnet": "10.3.0.0/24", "rangeStart": "2001:db8::9"`, ``, `"ipam.rangeStart": "2001:db8::9": must be in the subnet 10.3.0.0/24`},
		"start after end":    {`"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.9", "rangeEnd": "10.3.0.8"`, ``, `"ipam.rangeStart": "10.3.0.9": must not come after rangeEnd 10.3.0.8`},
		"start is broadcast": {`"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.255"`, ``, `"ipam.rangeStart": "10.3.0.255": must not come after rangeEnd 10.3.0.254`},
		"end is the network": {`"subnet": "10.3.0.0/24", "rangeEnd": "10.3.0.0"`, ``, `"ipam.rangeStart": "10.3.0.1": must not come after rangeEnd 10.3.0.0`},
		"gateway no address": {`"subnet": "10.3.0.0/24", "gateway": "router"`, ``, `"ipam.gateway": "router": must be an IP address`},
		"gateway outside":    {`"subnet": "10.3.0.0/24", "gateway": "10.4.0.1"`, ``, `"ipam.gateway": "10.4.0.1": must be in the subnet 10.3.0.0/24`},
		"gateway of IPv6":    {`"subnet": "10.3.0.0/24", "gateway": "fe80::1"`, ``, `"ipam.gateway": "fe80::1": must be in the subnet 10.3.0.0/24`},
		"gateway of a range": {`"ranges": [[{"subnet": "10.3.0.0/24"}, {"subnet": "10.4.0.0/24", "gateway": "10.3.0.1"}]]`, ``, `"ipam.ranges[0][1].gateway": "10.3.0.1": must be in the subnet 10.4.0.0/24`},
		"families mixed":     {`"ranges": [[{"subnet": "10.3.0.0/24"}, {"subnet": "2001:db8::/64"}]]`, ``, `"ipam.ranges[0][1].subnet": "2001:db8::/64": must be of the same family as the others in its set: a set gives one address`},
		"overlap in a set":   {`"ranges": [[{"subnet": "10.3.0.0/22"}, {"subnet": "10.3.2.0/24"}]]`, ``, `"ipam.ranges[0][1]": "10.3.2.1-10.3.2.254": must not overlap ipam.ranges[0][0] (10.3.0.1-10.3.3.254)`},
		"overlap of sets":    {`"ranges": [[{"subnet": "10.3.0.0/24"}, {"subnet": "10.4.0.0/24"}], [{"subnet": "10.5.0.0/24"}, {"subnet": "10.4.0.0/25"}]]`, ``, `"ipam.ranges[1]": "10.4.0.1-10.4.0.126": must not overlap ipam.ranges[0] (10.4.0.1-10.4.0.254)`},
		"overlap by one":     {`"ranges": [[{"subnet": "10.3.0.0/24", "rangeEnd": "10.3.0.9"}], [{"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.9"}]]`, ``, `"ipam.ranges[1]": "10.3.0.9-10.3.0.254": must not overlap ipam.ranges[0] (10.3.0.1-10.3.0.9)`},
		"overlap with flat":  {`"subnet": "10.3.0.0/24", "ranges": [[{"subnet": "10.3.0.0/24"}]]`, ``, `"ipam.ranges[0]": "10.3.0.1-10.3.0.254": must not be the same as ipam.subnet`},
		"overlap with the runtime's": {`"subnet": "10.3.0.0/24"`, `, "runtimeConfig": {"ipRanges": [[{"subnet": "10.3.0.0/24"}]]}`,
			`"ipam.subnet": "10.3.0.1-10.3.0.254": must not be the same as runtimeConfig.ipRanges[0]`},
		"the runtime's": {`"subnet": "10.3.0.0/24"`, `, "runtimeConfig": {"ipRanges": [[{"subnet": "10.5.0.1/24"}]]}`,
			`"runtimeConfig.ipRanges[0][0].subnet": "10.5.0.1/24": has bits set beyond its length: the network is 10.5.0.0/24`},
		"exclude":           {`"subnet": "10.3.0.0/24", "exclude": ["10.3.0.5", "ten"]`, ``, excludeError(1, "ten")},
		"exclude reversed":  {`"subnet": "10.3.0.0/24", "exclude": ["10.3.0.9-10.3.0.5"]`, ``, excludeError(0, "10.3.0.9-10.3.0.5")},
		"exclude mixed":     {`"subnet": "10.3.0.0/24", "exclude": ["10.3.0.9-2001:db8::1"]`, ``, excludeError(0, "10.3.0.9-2001:db8::1")},
		"exclude bits":      {`"subnet": "10.3.0.0/24", "exclude": ["10.3.0.9/28"]`, ``, excludeError(0, "10.3.0.9/28")},
		"exclude empty":     {`"subnet": "10.3.0.0/24", "exclude": [""]`, ``, excludeError(0, "")},
		"exclude half":      {`"subnet": "10.3.0.0/24", "exclude": ["10.3.0.9-"]`, ``, excludeError(0, "10.3.0.9-")},
		"exclude null":      {`"subnet": "10.3.0.0/24", "exclude": [null]`, ``, excludeError(0, "")},
		"route of nothing":  {`"subnet": "10.3.0.0/24", "routes": [{"dst": "10.0.0.0/8"}, null]`, ``, routeError(1, `null`)},
		"route without dst": {`"subnet": "10.3.0.0/24", "routes": [{"gw": "10.3.0.1"}]`, ``, routeError(0, `{"gw": "10.3.0.1"}`)},
		"route to nowhere":  {`"subnet": "10.3.0.0/24", "routes": [{"dst": "here"}]`, ``, routeError(0, `{"dst": "here"}`)},
		"route by text":     {`"subnet": "10.3.0.0/24", "routes": ["10.0.0.0/8"]`, ``, routeError(0, `"10.0.0.0/8"`)},
	} {
		_, err := parseIPAM(test.ipam, test.more)
		if diff := cmp.Diff(printedError{7, "invalid " + test.want}, parseError(t, err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func excludeError(i int, s string) string {
	return `"ipam.exclude[` + string(rune('0'+i)) + `]": "` + s + `": must be an address, a network such as 10.3.0.0/28, or a span such as 10.3.0.5-10.3.0.9`
}

func routeError(i int, quoted string) string {
	return `"ipam.routes[` + string(rune('0'+i)) + `]": ` + quoted + `: must be a route such as {"dst": "10.0.0.0/8", "gw": "10.3.0.1"}`
}

func TestWrongTypesAreNamedByTheirKeys(t *testing.T) {
	for in, want := range map[string]printedError{
		`{"name": 5}`:                                  {7, `invalid "name": 5: must be a string: put it in quotation marks`},
		`{"name": ""}`:                                 {7, `invalid "name": "": is empty`},
		`{"name": "a/b"}`:                              {7, `invalid "name": "a/b": must start with a letter or a digit and contain only letters, digits, '_', '.' and '-'`},
		`{"name": "../pods"}`:                          {7, `invalid "name": "../pods": must start with a letter or a digit and contain only letters, digits, '_', '.' and '-'`},
		`{"name": "pods"}`:                             {7, `invalid "ipam": missing: must say which addresses to give`},
		`{"name": "pods", "ipam": null}`:               {7, `invalid "ipam": missing: must say which addresses to give`},
		`{"name": "pods", "ipam": "static"}`:           {7, `invalid "ipam": "static": must be an object: put its keys in { }`},
		`{"name": "pods", "ipam": {"subnet": 10}}`:     {7, `invalid "ipam.subnet": 10: must be a string: put it in quotation marks`},
		`{"name": "pods", "ipam": {"rangeStart": {}}}`: {7, `invalid "ipam.rangeStart": {}: must be a string`},
		`{"name": "pods", "ipam": {"ranges": [{"subnet": "10.3.0.0/24"}]}}`:  {7, `invalid "ipam.ranges[0]": {"subnet": "10.3.0.0/24"}: must be a list: put it in [ ]`},
		`{"name": "pods", "ipam": {"ranges": [[{"gateway": true}]]}}`:        {7, `invalid "ipam.ranges[0][0].gateway": true: must be a string: put it in quotation marks`},
		`{"name": "pods", "ipam": {"routes": {"dst": "0.0.0.0/0"}}}`:         {7, `invalid "ipam.routes": {"dst": "0.0.0.0/0"}: must be a list of routes: put it in [ ]`},
		`{"name": "pods", "ipam": {"dataDir": ["/x"]}}`:                      {7, `invalid "ipam.dataDir": ["/x"]: must be a string`},
		`{"name": "pods", "ipam": {"store": 3}}`:                             {7, `invalid "ipam.store": 3: must be a string: put it in quotation marks`},
		`{"name": "pods", "ipam": {"store": "../x"}}`:                        {7, `invalid "ipam.store": "../x": must start with a letter or a digit and contain only letters, digits, '_', '.' and '-'`},
		`{"name": "pods", "ipam": {"dataDir": "here"}}`:                      {7, `invalid "ipam.dataDir": "here": must be an absolute path`},
		`{"name": "pods", "ipam": {"resolvConf": "resolv.conf"}}`:            {7, `invalid "ipam.resolvConf": "resolv.conf": must be an absolute path`},
		`{"name": "pods", "ipam": {"resolvConf": 1}}`:                        {7, `invalid "ipam.resolvConf": 1: must be a string: put it in quotation marks`},
		`{"name": "pods", "ipam": {"exclude": "10.3.0.5"}}`:                  {7, `invalid "ipam.exclude": "10.3.0.5": must be a list: put it in [ ]`},
		`{"name": "pods", "ipam": {"exclude": [5]}}`:                         {7, `invalid "ipam.exclude[0]": 5: must be a string: put it in quotation marks`},
		`{"name": "pods", "ipam": {"sticky": true}}`:                         {7, `invalid "ipam.sticky": true: must be a string: put it in quotation marks`},
		`{"name": "pods", "ipam": {"retain": 24}}`:                           {7, `invalid "ipam.retain": 24: must be a string: put it in quotation marks`},
		`{"name": "pods", "ipam": {"quarantine": 60}}`:                       {7, `invalid "ipam.quarantine": 60: must be a string: put it in quotation marks`},
		`{"name": "pods", "ipam": {}, "runtimeConfig": {"ips": "10.3.0.5"}}`: {7, `invalid "runtimeConfig.ips": "10.3.0.5": must be a list: put it in [ ]`},
		`{"name": "pods", "ipam": {}, "runtimeConfig": {"ipRanges": [{}]}}`:  {7, `invalid "runtimeConfig.ipRanges[0]": {}: must be a list: put it in [ ]`},
		`{"name": "pods", "ipam": {}, "args": {"cni": {"ips": "10.3.0.5"}}}`: {7, `invalid "args.cni.ips": "10.3.0.5": must be a list: put it in [ ]`},
		`{"name": "pods", "ipam": {}, "args": "IP=10.3.0.5"}`:                {7, `invalid "args": "IP=10.3.0.5": must be an object: put its keys in { }`},
		`[]`:               {6, "network configuration: must be an object"},
		``:                 {6, "network configuration: is empty: must be an object in JSON"},
		`{"name": "pods",`: {6, "network configuration: is no JSON: it ends too early: a quotation mark or a bracket is missing"},
	} {
		_, err := parse([]byte(in), cniplugin.Args{})
		if diff := cmp.Diff(want, parseError(t, err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

// Results up to 0.2.0 have a place for one address of each family.
func TestOldVersionsHaveOneAddressOfAFamily(t *testing.T) {
	const one, other, six = `[{"subnet": "10.3.0.0/24"}]`, `[{"subnet": "10.4.0.0/24"}]`, `[{"subnet": "2001:db8::/64"}]`
	for version, ok := range map[string]bool{"": false, "0.1.0": false, "0.2.0": false, "0.3.0": true, "0.4.0": true, "1.0.0": true, "1.1.0": true, "new": false} {
		_, err := parse([]byte(`{"cniVersion": "`+version+`", "name": "pods", "ipam": {"ranges": [`+one+`, `+six+`, `+other+`]}}`), cniplugin.Args{})
		want := printedError{7, `invalid "cniVersion": "` + version + `": must be 0.3.0 or newer for more than one address of a family`}
		if ok {
			want = printedError{}
		}
		if diff := cmp.Diff(want, parseError(t, err)); diff != "" {
			t.Errorf("%q: several (-want +got):\n%s", version, diff)
		}
		if _, err := parse([]byte(`{"cniVersion": "`+version+`", "name": "pods", "ipam": {"ranges": [`+one+`, `+six+`]}}`), cniplugin.Args{}); err != nil {
			t.Errorf("%q: one of each: %v", version, err)
		}
	}
}

func TestExcludeTakesAddressesNetworksAndSpans(t *testing.T) {
	n, err := parseIPAM(`"ranges": [[{"subnet": "10.3.0.0/24"}], [{"subnet": "2001:db8::/64"}]], "exclude": [
		"10.3.0.2", "10.3.0.64/26", "10.3.0.250-10.3.0.255", " 10.3.0.5 - 10.3.0.6 ", "255.255.255.0-255.255.255.255", "0.0.0.0/31",
		"2001:db8::-2001:db8::ffff", "ffff::/16", "10.3.0.9/32"]`, "")
	if err != nil {
		t.Fatal(err)
	}
	for a, want := range map[string]bool{
		"10.3.0.1": false, "10.3.0.2": false, "10.3.0.3": true, "10.3.0.5": false, "10.3.0.6": false, "10.3.0.7": true, "10.3.0.9": false,
		"10.3.0.63": true, "10.3.0.64": false, "10.3.0.127": false, "10.3.0.128": true, "10.3.0.249": true, "10.3.0.250": false, "10.3.0.254": false,
		"2001:db8::1": false, "2001:db8::ffff": false, "2001:db8::1:0": true, "2001:db8::ffff:ffff:ffff:ffff": true,
	} {
		set := n.sets[0]
		if addr(a).Is6() {
			set = n.sets[1]
		}
		r, _ := set.Find(addr(a))
		if got, why := r.Gives(addr(a)); got != want {
			t.Errorf("%s is given: %v, want %v (%s)", a, got, want, why)
		}
	}
}

func TestPolicy(t *testing.T) {
	for in, want := range map[string]lease.Policy{
		``:                   {Quarantine: lease.DefaultQuarantine},
		`"sticky": ""`:       {Quarantine: lease.DefaultQuarantine},
		`"sticky": "none"`:   {Quarantine: lease.DefaultQuarantine},
		`"sticky": "pod"`:    {Sticky: true, Quarantine: lease.DefaultQuarantine},
		`"quarantine": "0s"`: {},
		`"sticky": "pod", "retain": "24h", "quarantine": "90s"`: {Sticky: true, Retain: lease.Duration(24 * time.Hour), Quarantine: lease.Duration(90 * time.Second)},
	} {
		n, err := parseIPAM(strings.TrimSuffix(`"subnet": "10.3.0.0/24", `+in, ", "), "")
		if diff := cmp.Diff(want, n.policy); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", in, err, diff)
		}
	}
}

func TestConflictDetection(t *testing.T) {
	for in, want := range map[string]*Detection{
		`false`: nil, `null`: nil,
		`true`:                           {Probes: 3, Wait: 200 * time.Millisecond},
		`{}`:                             {Probes: 3, Wait: 200 * time.Millisecond},
		`{"probes": null, "wait": null}`: {Probes: 3, Wait: 200 * time.Millisecond},
		`{"probes": 1, "wait": "2s"}`:    {Probes: 1, Wait: 2 * time.Second},
		`{"probes": 10}`:                 {Probes: 10, Wait: 200 * time.Millisecond},
	} {
		n, err := parseIPAM(`"subnet": "10.3.0.0/24", "conflictDetection": `+in, "")
		if diff := cmp.Diff(want, n.detection); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", in, err, diff)
		}
	}
}

func TestWhatIsWrongWithThePolicyAndWhatToDo(t *testing.T) {
	const (
		retain     = "must be a duration such as 24h; leave it out to retain the address until it is released"
		quarantine = "must be a duration such as 60s, or 0s for none"
		detection  = `must be true, false or an object such as {"probes": 3, "wait": "200ms"}`
		wait       = "must be a duration such as 200ms, at most 2s"
	)
	for in, want := range map[string]string{
		`"sticky": "vm"`:                      `"ipam.sticky": "vm": must be none, pod or owner`,
		`"sticky": "Pod"`:                     `"ipam.sticky": "Pod": must be none, pod or owner`,
		`"retain": "24h"`:                     `"ipam.retain": "24h": needs "sticky": "pod" or "sticky": "owner": no other address is retained`,
		`"sticky": "none", "retain": "24h"`:   `"ipam.retain": "24h": needs "sticky": "pod" or "sticky": "owner": no other address is retained`,
		`"sticky": "pod", "retain": "1d"`:     `"ipam.retain": "1d": ` + retain,
		`"sticky": "pod", "retain": "0s"`:     `"ipam.retain": "0s": ` + retain,
		`"sticky": "pod", "retain": "-1h"`:    `"ipam.retain": "-1h": ` + retain,
		`"sticky": "pod", "retain": ""`:       `"ipam.retain": "": ` + retain,
		`"quarantine": "60"`:                  `"ipam.quarantine": "60": ` + quarantine,
		`"quarantine": "-1s"`:                 `"ipam.quarantine": "-1s": ` + quarantine,
		`"quarantine": ""`:                    `"ipam.quarantine": "": ` + quarantine,
		`"conflictDetection": "yes"`:          `"ipam.conflictDetection": "yes": ` + detection,
		`"conflictDetection": []`:             `"ipam.conflictDetection": []: ` + detection,
		`"conflictDetection": {"wait": 1}`:    `"ipam.conflictDetection": {"wait": 1}: ` + detection,
		`"conflictDetection": {"probes": 0}`:  `"ipam.conflictDetection.probes": 0: must be between 1 and 10`,
		`"conflictDetection": {"probes": 11}`: `"ipam.conflictDetection.probes": 11: must be between 1 and 10`,
		`"conflictDetection": {"wait": "0s"}`: `"ipam.conflictDetection.wait": "0s": ` + wait,
		`"conflictDetection": {"wait": "1m"}`: `"ipam.conflictDetection.wait": "1m": ` + wait,
		`"conflictDetection": {"wait": "1"}`:  `"ipam.conflictDetection.wait": "1": ` + wait,
		`"exclude": ["10.3.0.0/24"]`:          `"ipam.subnet": "10.3.0.1-10.3.0.254": must have an address that is neither excluded nor the gateway`,
	} {
		_, err := parseIPAM(`"subnet": "10.3.0.0/24", `+in, "")
		if diff := cmp.Diff(printedError{7, "invalid " + want}, parseError(t, err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

func TestRequestedAddressesInHostLocalsOrder(t *testing.T) {
	ask := func(env, args, capability string) (string, error) {
		n, err := parse([]byte(`{"name": "pods", "ipam": {"subnet": "10.3.0.0/24"}, "args": {"cni": {"ips": `+args+`}}, "runtimeConfig": {"ips": `+capability+`}}`), cniplugin.Args{IP: env})
		var all []string
		for _, r := range n.requested {
			all = append(all, r.address.String())
		}
		return strings.Join(all, " "), err
	}
	for _, test := range []struct{ env, args, capability, want string }{
		{"", "null", "null", ""},
		{"10.3.0.5", "[]", "[]", "10.3.0.5"},
		{"10.3.0.5/24", `["10.3.0.6/16", "2001:db8::6/64"]`, `["10.3.0.7/24", "10.3.0.8"]`, "10.3.0.5 10.3.0.6 2001:db8::6 10.3.0.7 10.3.0.8"},
		{"::ffff:10.3.0.5", `["::ffff:10.3.0.6/120"]`, `[]`, "10.3.0.5 10.3.0.6"},
		{"10.3.0.5", `["10.3.0.5/24"]`, `["::ffff:10.3.0.5", "10.3.0.6"]`, "10.3.0.5 10.3.0.6"},
	} {
		if got, err := ask(test.env, test.args, test.capability); err != nil || got != test.want {
			t.Errorf("%+v: %q, %v", test, got, err)
		}
	}
	for _, test := range []struct {
		env, args, capability string
		want                  printedError
	}{
		{"five", "[]", "[]", printedError{4, `invalid CNI_ARGS: "IP=five": must be an IP address`}},
		{"10.3.0.5/33", "[]", "[]", printedError{4, `invalid CNI_ARGS: "IP=10.3.0.5/33": must be an IP address`}},
		{"fe80::1%eth0", "[]", "[]", printedError{4, `invalid CNI_ARGS: "IP=fe80::1%eth0": must be an IP address`}},
		{"", `["10.3.0.5", "six"]`, "[]", printedError{7, `invalid "args.cni.ips[1]": "six": must be an IP address`}},
		{"", `[]`, `[""]`, printedError{7, `invalid "runtimeConfig.ips[0]": "": must be an IP address`}},
		{"", `[]`, `[null]`, printedError{7, `invalid "runtimeConfig.ips[0]": "": must be an IP address`}},
	} {
		_, err := ask(test.env, test.args, test.capability)
		if diff := cmp.Diff(test.want, parseError(t, err)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test, diff)
		}
	}
}

// What no ADD can give is known without the leases.
func TestExamineReportsAddressesThatAreNeverGiven(t *testing.T) {
	for ips, want := range map[string][]string{
		`[]`: nil, `["10.3.0.5"]`: nil, `["fd00::5/64", "10.3.0.5"]`: nil,
		`["10.4.0.5"]`:             {`invalid "args.cni.ips[0]": "10.4.0.5": is in none of the range sets`},
		`["10.3.0.5", "10.3.0.6"]`: {`invalid "args.cni.ips[1]": "10.3.0.6": is the second address of a range set that gives one, after 10.3.0.5`},
		`["fd00::1", "10.3.0.9"]`: {
			`invalid "args.cni.ips[1]": "10.3.0.9": cannot be given: it is in exclude 10.3.0.9`, `invalid "args.cni.ips[0]": "fd00::1": cannot be given: it is the gateway`,
		},
	} {
		var n cniplugin.Network
		config := `{"cniVersion": "1.1.0", "name": "pods", "args": {"cni": {"ips": ` + ips + `}}, "ipam": {"type": "relink-ipam",
			"ranges": [[{"subnet": "10.3.0.0/24"}], [{"subnet": "fd00::/64"}]], "exclude": ["10.3.0.9"]}}`
		if err := cniplugin.Decode([]byte(config), &n); err != nil {
			t.Fatal(err)
		}
		_, errs := Examine(n)
		var got []string
		for _, err := range errs {
			got = append(got, parseError(t, err).Msg)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", ips, diff)
		}
	}
}

// Routes are passed on with all their keys.
func TestRoutesAreKept(t *testing.T) {
	n, err := parseIPAM(`"subnet": "10.3.0.0/24", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.0.0.7/8", "gw": "10.3.0.1", "mtu": 1400, "advmss": 1360, "priority": 5, "table": 7, "scope": 253}]`, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range n.Routes {
		b, err := (*types.Route).MarshalJSON(r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(b))
	}
	want := []string{`{"dst":"0.0.0.0/0"}`, `{"dst":"10.0.0.7/8","gw":"10.3.0.1","mtu":1400,"advmss":1360,"priority":5,"table":7,"scope":253}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A relative path would be another directory for each caller.
func TestEnvironmentNamesAnAbsolutePath(t *testing.T) {
	t.Setenv(lease.DirEnv, "leases")
	n := newNode(t, `"subnet": "10.3.0.0/24"`)
	c := n.begin(t, n.args("c1/eth0", ""))
	c.config.IPAM.JSON, c.store = []byte(`{"subnet": "10.3.0.0/24"}`), nil
	_, err := c.Add(t.Context())
	n.expectError(t, "ADD", err, 4, `relink-ipam: invalid RELINK_IPAM_DIR: "leases": must be an absolute path`)
	if _, err := lease.Networks(""); !errors.Is(err, lease.ErrDir) {
		t.Errorf("Networks: %v", err)
	}
	if dir, err := lease.Dir("/configured"); err != nil || dir != "/configured" {
		t.Errorf("Dir: %s, %v", dir, err)
	}
}
