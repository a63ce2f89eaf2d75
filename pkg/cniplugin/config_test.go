package cniplugin

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
)

// coded is what an error says on the wire, zero for none.
type coded struct {
	Code uint
	Msg  string
}

func code(t *testing.T, err error) coded {
	t.Helper()
	if err == nil {
		return coded{}
	}
	var e *types.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v (%T) has no code", err, err)
	}
	return coded{e.Code, e.Msg}
}

func TestParseArgs(t *testing.T) {
	for in, test := range map[string]struct {
		want Args
		err  coded
	}{
		"": {},
		"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u1": {
			want: Args{Pod: attachment.Pod{Namespace: "default", Name: "web-0", UID: "u1"}},
		},
		"MAC=02:00:00:00:00:01":       {want: Args{MAC: "02:00:00:00:00:01"}},
		"IP=10.0.0.1;GATEWAY=":        {want: Args{IP: "10.0.0.1"}},
		"IP=10.3.0.7/24,fd00:3::7/64": {want: Args{IP: "10.3.0.7/24,fd00:3::7/64"}},
		"K8S_POD_NAME=a=b":            {want: Args{Pod: attachment.Pod{Name: "a=b"}}},
		"K8S_POD_NAME=a;MAC":          {err: coded{4, `invalid CNI_ARGS: "MAC": must be of the form KEY=VALUE, with ; between the pairs`}},
		"K8S_POD_NAME=a;":             {err: coded{4, `invalid CNI_ARGS: "": must be of the form KEY=VALUE, with ; between the pairs`}},
		"k8s_pod_name=a;mac=x":        {},
		"K8S_POD_NAME=a;MAC=1;MAC=2":  {want: Args{Pod: attachment.Pod{Name: "a"}, MAC: "2"}},
	} {
		got, err := ParseArgs(in)
		if diff := cmp.Diff(test.err, code(t, err)); diff != "" {
			t.Errorf("%q: error (-want +got):\n%s", in, diff)
		}
		if err == nil && got != test.want {
			t.Errorf("ParseArgs(%q) = %+v, want %+v", in, got, test.want)
		}
	}
}

func TestMasterIsANameOrAListOfThem(t *testing.T) {
	const form = "must be a device's name or a list of them"
	for in, test := range map[string]struct {
		want Names
		err  coded
	}{
		`{}`:                            {},
		`{"master": null}`:              {},
		`{"master": ""}`:                {},
		`{"master": "eth1"}`:            {want: Names{"eth1"}},
		`{"master": ["eth1", "bond4"]}`: {want: Names{"eth1", "bond4"}},
		`{"master": []}`:                {err: coded{7, `invalid "master": []: must name at least one device; leave it out for the default route's device`}},
		`{"master": 7}`:                 {err: coded{7, `invalid "master": 7: ` + form}},
		`{"master": ["eth1", 7]}`:       {err: coded{7, `invalid "master": ["eth1", 7]: ` + form}},
		`{"master": {"name": "eth1"}}`:  {err: coded{7, `invalid "master": {"name": "eth1"}: ` + form}},
	} {
		var c Config
		err := Decode([]byte(in), &c)
		if diff := cmp.Diff(test.err, code(t, err)); diff != "" {
			t.Errorf("%s: error (-want +got):\n%s", in, diff)
		}
		if diff := cmp.Diff(test.want, c.Master); err == nil && diff != "" {
			t.Errorf("%s: (-want +got):\n%s", in, diff)
		}
	}
}

func TestDecodeSaysWhatIsWrongAndWhere(t *testing.T) {
	for in, want := range map[string]coded{
		`{"mtu": 1500, "unknown": {"to": "us"}}`: {},
		`{"mtu": "1500"}`:                        {7, `invalid "mtu": "1500": must be a whole number, without quotation marks`},
		`{"mtu": 1.5}`:                           {7, `invalid "mtu": 1.5: must be a whole number`},
		`{"linkInContainer": "yes"}`:             {7, `invalid "linkInContainer": "yes": must be true or false, without quotation marks`},
		`{"checkpointDir": ["/x"]}`:              {7, `invalid "checkpointDir": ["/x"]: must be a string`},
		``:                                       {6, "network configuration: is empty: must be an object in JSON"},
		`{"mtu": 1500`:                           {6, "network configuration: is no JSON: it ends too early: a quotation mark or a bracket is missing"},
		`{"mtu": 1500} x`:                        {6, `network configuration: is no JSON from "x" in line 1 on: a comma, a quotation mark or a bracket is missing or too many`},
		`mtu: 1500`:                              {6, `network configuration: is no JSON from "mtu: 1500" in line 1 on: a comma, a quotation mark or a bracket is missing or too many`},
	} {
		var c Config
		if diff := cmp.Diff(want, code(t, Decode([]byte(in), &c))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

// A part of the configuration is named from the top, as one reads it.
func TestDecodePartSaysWhereItIs(t *testing.T) {
	for in, test := range map[string]struct {
		part any
		want coded
	}{
		`{"subnet": "10.3.0.0/24"}`: {&shared{}, coded{}},
		`{"subnet": 7}`:             {&shared{}, coded{7, `invalid "ipam.subnet": 7: must be a string: put it in quotation marks`}},
		`[{"subnet": 7}]`:           {&[]shared{}, coded{7, `invalid "ipam[0].subnet": 7: must be a string: put it in quotation marks`}},
		`7`:                         {&shared{}, coded{7, `invalid "ipam": 7: must be an object: put its keys in { }`}},
		`"10.3.0.0/24"`:             {&[]shared{}, coded{7, `invalid "ipam": "10.3.0.0/24": must be a list: put it in [ ]`}},
	} {
		if diff := cmp.Diff(test.want, code(t, DecodePart("ipam", []byte(in), test.part))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

// The IPAM plugin reads its section as it is written, whatever the interface plugin makes of
// the rest.
func TestSectionKeepsWhatIsWritten(t *testing.T) {
	for in, test := range map[string]struct {
		kind, raw string
		err       coded
	}{
		`{}`:                               {},
		`{"ipam": null}`:                   {},
		`{"ipam": {}}`:                     {raw: `{}`},
		`{"ipam": {"type": null}}`:         {raw: `{"type": null}`},
		`{"ipam": {"type": "x", "n": 7 }}`: {kind: "x", raw: `{"type": "x", "n": 7 }`},
		`{"ipam": {"n": [{"a": 1}]}}`:      {raw: `{"n": [{"a": 1}]}`},
		`{"ipam": {"type": []}}`:           {err: coded{7, `invalid "ipam.type": []: must be a string`}},
		`{"ipam": "static"}`:               {err: coded{7, `invalid "ipam": "static": must be an object: put its keys in { }`}},
		`{"ipam": []}`:                     {err: coded{7, `invalid "ipam": []: must be an object: put its keys in { }`}},
	} {
		b := []byte(in)
		var n Network
		if diff := cmp.Diff(test.err, code(t, Decode(b, &n))); diff != "" {
			t.Errorf("%s: error (-want +got):\n%s", in, diff)
		}
		clear(b) // Nothing of it is kept but a copy.
		if test.err == (coded{}) && (n.IPAM.Type != test.kind || string(n.IPAM.JSON) != test.raw) {
			t.Errorf("%s: type %q of %q, want %q of %q", in, n.IPAM.Type, n.IPAM.JSON, test.kind, test.raw)
		}
	}
}

// lower embeds a struct whose name looks like a key.
type lower struct {
	Config
	IPAM *struct {
		shared
		Lists [][]shared `json:"lists"`
	} `json:"ipam"`
}

type shared struct {
	Subnet string `json:"subnet"`
}

func TestDecodeNamesNoEmbeddedStruct(t *testing.T) {
	for in, want := range map[string]coded{
		`{"ipam": {"subnet": 7}}`:                {7, `invalid "ipam.subnet": 7: must be a string: put it in quotation marks`},
		`{"ipam": {"lists": [[{"subnet": 7}]]}}`: {7, `invalid "ipam.lists[0][0].subnet": 7: must be a string: put it in quotation marks`},
		`{"ipam": []}`:                           {7, `invalid "ipam": []: must be an object: put its keys in { }`},
		`{"mtu": "x"}`:                           {7, `invalid "mtu": "x": must be a whole number, without quotation marks`},
		`{"name": {}}`:                           {7, `invalid "name": {}: must be a string`},
		`{"ipam": {"type": []}}`:                 {},
	} {
		var c lower
		if diff := cmp.Diff(want, code(t, Decode([]byte(in), &c))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

func TestConfigProblems(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		want   coded
	}{
		"nothing set":       {Config{}, coded{}},
		"all set":           {Config{Master: Names{"eth1", "bond4.3"}, MTU: 68}, coded{}},
		"an altname":        {Config{Master: Names{"eth1", "enp3s0f0np0.of.the.lower.port"}}, coded{}},
		"master of nothing": {Config{Master: Names{""}}, coded{7, `invalid "master": "": must be a device's name`}},
		"MTU too small":     {Config{MTU: 67}, coded{7, `invalid "mtu": 67: must be 0 (the master's MTU) or at least 68`}},
		"MTU negative":      {Config{MTU: -1}, coded{7, `invalid "mtu": -1: must be 0 (the master's MTU) or at least 68`}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, code(t, FirstError(test.config.Problems()))); diff != "" {
				t.Errorf("Problems() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseMACNamesItsKey(t *testing.T) {
	for in, test := range map[string]struct {
		want string
		err  coded
	}{
		"":                  {},
		"02-00-00-00-00-AB": {want: "02:00:00:00:00:ab"},
		"here":              {err: coded{7, `invalid "mac": "here": must be the MAC address of one device: 6 bytes such as 02:00:00:00:00:01, neither zero nor multicast`}},
	} {
		got, err := ParseMAC("mac", in)
		if diff := cmp.Diff(test.err, code(t, err)); diff != "" || got != test.want {
			t.Errorf("ParseMAC(%q) = %q, want %q; error (-want +got):\n%s", in, got, test.want, diff)
		}
	}
}

func TestParseVLANProtocol(t *testing.T) {
	for in, test := range map[string]struct {
		want string
		err  coded
	}{
		"":        {want: "802.1q"},
		"802.1q":  {want: "802.1q"},
		"802.1Q":  {want: "802.1q"},
		"802.1AD": {want: "802.1ad"},
		"qinq":    {err: coded{7, `invalid "vlanProtocol": "qinq": must be 802.1q or 802.1ad`}},
	} {
		got, err := ParseVLANProtocol(in)
		if diff := cmp.Diff(test.err, code(t, err)); diff != "" || got != test.want {
			t.Errorf("ParseVLANProtocol(%q) = %q, want %q; error (-want +got):\n%s", in, got, test.want, diff)
		}
	}
}

// A comment in "ipam" asks for no addresses.
func TestASectionWithNothingButComments(t *testing.T) {
	for section, want := range map[string]int{`{}`: 0, `{"_comment": "none"}`: 0, `{"#": 1, "//": 2, "type": ""}`: 0, `{"_comment": "none", "subnet": "10.3.0.0/24"}`: 1} {
		var c Config
		if err := Decode([]byte(`{"name": "pods", "ipam": `+section+`}`), &c); err != nil {
			t.Fatal(err)
		}
		if errs := c.Problems(); len(errs) != want {
			t.Errorf("%s: %v, want %d", section, errs, want)
		}
	}
}
