package netconf

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/hostaccess"
)

// messages are the messages of the errors, one on each line. Each has the code 7.
func messages(t *testing.T, errs []error) string {
	t.Helper()
	var all []string
	for _, err := range errs {
		if coded := (*types.Error)(nil); !errors.As(err, &coded) || coded.Code != types.ErrInvalidNetworkConfig {
			t.Errorf("%v does not have the code 7", err)
		} else {
			all = append(all, coded.Msg)
		}
	}
	return strings.Join(all, "\n")
}

func TestHostAccessKeys(t *testing.T) {
	const network = "must be a network such as 10.96.0.0/12, or an address"
	const everyone = "must not be everything: the pod's own network would be of no use"
	const unreachable = "must not be a loopback, multicast or IPv6 link-local address: the node cannot be reached there"
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf("%q", fmt.Sprintf("10.%d.%d.0/24", i/200, i%200)))
	}
	for written, want := range map[string]struct{ options, errs string }{
		`true`:  {"{host0 [] [] false 0x0 false}", ""},
		`{}`:    {"{host0 [] [] false 0x0 false}", ""},
		`false`: {"none", ""},
		`null`:  {"none", ""},
		`{"ifName": "node0", "services": ["10.96.0.0/12", "fd00:96::/108"], "extra": ["169.254.20.10", "fd00::a"], "masquerade": true}`: {
			"{node0 [10.96.0.0/12 fd00:96::/108] [169.254.20.10/32 fd00::a/128] false 0x0 true}", "",
		},
		`{"preserveSource": true}`:                       {"{host0 [] [] true 0x10000000 false}", ""},
		`{"preserveSource": true, "mark": "0x20000000"}`: {"{host0 [] [] true 0x20000000 false}", ""},
		`{"preserveSource": true, "mark": 256}`:          {"{host0 [] [] true 0x100 false}", ""},
		`{"mark": null}`:                                 {"{host0 [] [] false 0x0 false}", ""},
		`"yes"`:                                          {"", `invalid "hostAccess": "yes": must be true or an object`},
		`[]`:                                             {"", `invalid "hostAccess": []: must be true or an object`},
		`1`:                                              {"", `invalid "hostAccess": 1: must be true or an object`},
		`{"service": ["10.96.0.0/12"]}`:                  {"", `invalid configuration key "hostAccess.service": no such key of "hostAccess"; did you mean "services"?`},
		`{"services": "10.96.0.0/12"}`:                   {"", `invalid "hostAccess.services": "10.96.0.0/12": must be a list`},
		`{"masquerade": "true"}`:                         {"", `invalid "hostAccess.masquerade": "true": must be true or false, without quotation marks`},
		`{"ifName": "a/b"}`:                              {"", `invalid "hostAccess.ifName": "a/b": `},
		`{"ifName": "lo"}`:                               {"", `invalid "hostAccess.ifName": "lo": must be another name: the kernel has this one for itself, or iptables cannot read it`},
		`{"ifName": "a'b"}`:                              {"", `invalid "hostAccess.ifName": "a'b": must be another name: the kernel has this one for itself, or iptables cannot read it`},
		`{"mark": 1}`:                                    {"", `invalid "hostAccess.mark": 1: is of use with hostAccess.preserveSource alone`},
		`{"preserveSource": true, "mark": 3}`:            {"", `invalid "hostAccess.mark": 3: must be one bit of 32, such as "0x10000000"`},
		`{"preserveSource": true, "mark": "x"}`:          {"", `invalid "hostAccess.mark": "x": must be one bit of 32, such as "0x10000000"`},
		`{"preserveSource": true, "mark": ""}`:           {"", `invalid "hostAccess.mark": "": must be one bit of 32, such as "0x10000000"`},
		`{"services": ["10.96.0.1/12"]}`:                 {"", `invalid "hostAccess.services[0]": "10.96.0.1/12": has bits beyond the prefix length: write 10.96.0.0/12`},
		`{"extra": ["10.1.0.0/16", "10.1.0.0/16"]}`:      {"", `invalid "hostAccess.extra[1]": "10.1.0.0/16": is in the list twice: keep one`},
		`{"services": ["x", "0.0.0.0/0"], "extra": ["::/0", "::ffff:10.0.0.1", "fe80::1%eth0", "fe80::/64", "127.0.0.1", "224.0.0.0/4", "ff00::/8"]}`: {"", strings.Join([]string{
			`invalid "hostAccess.services[0]": "x": ` + network, `invalid "hostAccess.services[1]": "0.0.0.0/0": ` + everyone,
			`invalid "hostAccess.extra[0]": "::/0": ` + everyone, `invalid "hostAccess.extra[1]": "::ffff:10.0.0.1": ` + network,
			`invalid "hostAccess.extra[2]": "fe80::1%eth0": ` + network, `invalid "hostAccess.extra[3]": "fe80::/64": ` + unreachable,
			`invalid "hostAccess.extra[4]": "127.0.0.1": ` + unreachable, `invalid "hostAccess.extra[5]": "224.0.0.0/4": ` + unreachable,
			`invalid "hostAccess.extra[6]": "ff00::/8": ` + unreachable,
		}, "\n")},
		`{"extra": [` + strings.Join(many, ",") + `]}`: {"", `invalid "hostAccess.extra": "65 networks": must have at most 64`},
	} {
		request, errs := Macvlan([]byte(`{"name": "lan", "type": "relink-macvlan", "master": "eth0", "ipam": {"type": "relink-ipam", "subnet": "10.3.0.0/24"}, "hostAccess": `+written+`}`), cniplugin.Args{})
		got := messages(t, errs)
		if want.errs == "" && got != "" || !strings.HasPrefix(got, want.errs) {
			t.Errorf("%s: %s\nwant: %s", written, got, want.errs)
		}
		if len(errs) > 0 {
			continue
		}
		options := "none"
		if o := request.HostAccess; o != nil {
			options = fmt.Sprintf("{%s %v %v %v %#x %v}", o.Name, o.Services, o.Extra, o.PreserveSource, o.Mark, o.Masquerade)
		}
		if options != want.options {
			t.Errorf("%s: %s, want %s", written, options, want.options)
		}
	}
}

// The plugin relink-host-access has the keys beside its type, and says so to those who know relink-macvlan's.
func TestHostAccessPlugin(t *testing.T) {
	request, errs := HostAccess([]byte(`{"name": "lan", "type": "relink-host-access", "services": ["10.96.0.0/12"], "preserveSource": true}`), cniplugin.Args{})
	if len(errs) > 0 || request.HostAccess == nil || len(request.HostAccess.Services) != 1 || request.HostAccess.Mark != hostaccess.DefaultMark {
		t.Errorf("%+v, %v", request.HostAccess, errs)
	}
	_, errs = HostAccess([]byte(`{"name": "lan", "type": "relink-host-access", "hostAccess": true, "extra": ["x"]}`), cniplugin.Args{})
	const want = `invalid configuration key "hostAccess": a key of relink-macvlan; here, write its keys beside "type"` + "\n" +
		`invalid "extra[0]": "x": must be a network such as 10.96.0.0/12, or an address`
	if diff := cmp.Diff(want, messages(t, errs)); diff != "" {
		t.Error(diff)
	}
}

// A command names its flags.
func TestHostAccessFlags(t *testing.T) {
	_, errs := AccessConfig{IfName: "a/b", Services: []string{"x"}, Mark: "1"}.FlagOptions()
	got := messages(t, errs)
	for _, want := range []string{`invalid "--if-name": "a/b": `, `invalid "--services[0]": "x": `, `invalid "--mark": "1": is of use with --preserve-source alone`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\ndoes not have %s", got, want)
		}
	}
}

// FuzzHostAccess shows that no configuration makes the plugin panic, that each error has a code, and that what is accepted can be
// recorded.
func FuzzHostAccess(f *testing.F) {
	f.Add([]byte(`{"name": "lan", "type": "relink-host-access", "services": ["10.96.0.0/12", "fd00:96::/108"], "extra": ["169.254.20.10"]}`))
	f.Add([]byte(`{"name": "lan", "type": "relink-host-access", "ifName": "host0", "preserveSource": true, "mark": "0x8", "masquerade": true}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		request, errs := HostAccess(config, cniplugin.Args{})
		for _, err := range errs {
			if coded := (*types.Error)(nil); !errors.As(err, &coded) || coded.Code == 0 {
				t.Errorf("%v has no code", err)
			}
		}
		if len(errs) > 0 {
			return
		}
		access := hostaccess.Access{Options: *request.HostAccess, HostName: "rl0", Alias: `{"network":"n","container":"c","interface":"i"}`, MAC: "02:00:00:00:00:01", MTU: 1500}
		if err := access.Validate(); err != nil {
			t.Errorf("accepted, and no checkpoint can have it: %v", err)
		}
	})
}
