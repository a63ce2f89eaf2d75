package netconf

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/hostaccess"
)

// HostAccessName is the name of the plugin that gives host access to the pods of another interface plugin.
const HostAccessName = "relink-host-access"

// accessKeys are the keys of "hostAccess". The plugin relink-host-access has them beside its own.
var accessKeys = cniplugin.KeyNames("ifName", "services", "extra", "preserveSource", "mark", "masquerade")

var (
	// hostAccessKeys are the keys of the object "hostAccess".
	hostAccessKeys = cniplugin.Keys{Program: `"hostAccess"`, Accepted: accessKeys, Elsewhere: slices.Concat(
		cniplugin.HintsFor(`"hostAccess"`, "masquerade", "masq", "ipmasq", "snat"), cniplugin.HintsFor(`"hostAccess"`, "mark", "fwmark"),
		cniplugin.HintsFor(`"hostAccess"`, "services", "servicecidr", "servicecidrs"),
		cniplugin.Hints(`a key of relink-macvlan: write it beside "hostAccess", not in it`, "vlan", "vlans", "vlanid", "vlantag", "vlanprotocol", "vlanname", "master", "mtu", "mac", "mode", "ipam", "checkpointdir"))}
	// HostAccessKeys are the plugin's keys.
	HostAccessKeys = cniplugin.Keys{
		Program: HostAccessName, Accepted: slices.Concat(CheckpointKeys.Accepted, accessKeys),
		// The first hint for a key counts.
		Elsewhere: append(cniplugin.Hints("a key of relink-macvlan; here, write its keys beside \"type\"", "hostaccess"), CheckpointKeys.Elsewhere...),
	}
)

// AccessConfig are the keys of "hostAccess", or the flags of a command for them.
type AccessConfig struct {
	IfName         string   `json:"ifName"`
	Services       []string `json:"services"`
	Extra          []string `json:"extra"`
	PreserveSource bool     `json:"preserveSource"`
	// Mark is empty for the default.
	Mark       MarkText `json:"mark"`
	Masquerade bool     `json:"masquerade"`
}

// MarkText is the bit of preserveSource as JSON: a number, or a string with one.
type MarkText string

// UnmarshalJSON keeps the text.
func (m *MarkText) UnmarshalJSON(b []byte) error {
	if *m = MarkText(b); *m == "null" {
		*m = ""
	}
	return nil
}

// hostAccess is "hostAccess": a boolean, or an object with the keys.
type hostAccess struct {
	AccessConfig
	disabled bool
}

// UnmarshalJSON takes a boolean or an object.
func (h *hostAccess) UnmarshalJSON(b []byte) error {
	*h = hostAccess{}
	switch text := bytes.TrimSpace(b); {
	case bytes.Equal(text, []byte("true")):
		return nil
	case bytes.Equal(text, []byte("false")), bytes.Equal(text, []byte("null")):
		h.disabled = true
		return nil
	case len(text) == 0 || text[0] != '{':
		return cniplugin.ConfigError("hostAccess", cniplugin.RawValue(b), "must be true or an object")
	}
	return cniplugin.DecodePart("hostAccess", b, &h.AccessConfig)
}

// options returns what is asked for, nil for nothing, and everything that is wrong.
func (h *hostAccess) options() (*hostaccess.Options, []error) {
	if h == nil || h.disabled {
		return nil, nil
	}
	return h.AccessConfig.options(func(key string) string { return "hostAccess." + key })
}

// options returns what is asked for, and everything that is wrong. keyName is how messages name a key.
func (h AccessConfig) options(keyName func(key string) string) (*hostaccess.Options, []error) {
	o := &hostaccess.Options{Name: h.IfName, PreserveSource: h.PreserveSource, Masquerade: h.Masquerade}
	var errs cniplugin.Problems
	if o.Name == "" {
		o.Name = hostaccess.DefaultName
	}
	if err := attachment.ValidateIfName(o.Name); err != nil {
		errs.Refuse(keyName("ifName"), o.Name, err.Error())
	} else if slices.Contains([]string{"lo", "all", "default"}, o.Name) || strings.ContainsAny(o.Name, "\"'\\") {
		errs.Refuse(keyName("ifName"), o.Name, "must be another name: the kernel has this one for itself, or iptables cannot read it")
	}
	o.Services = prefixes(keyName("services"), h.Services, &errs)
	o.Extra = prefixes(keyName("extra"), h.Extra, &errs)
	mark, ok := hostaccess.ParseMark(strings.Trim(cmp.Or(string(h.Mark), strconv.FormatUint(hostaccess.DefaultMark, 10)), `"`))
	switch {
	case !ok:
		errs.Refuse(keyName("mark"), cniplugin.RawValue(h.Mark), `must be one bit of 32, such as "0x10000000"`)
	case h.PreserveSource:
		o.Mark = mark
	case h.Mark != "":
		errs.Refuse(keyName("mark"), cniplugin.RawValue(h.Mark), "is of use with "+keyName("preserveSource")+" alone")
	}
	return o, errs
}

// maxNetworks is how many networks a key can have: each pod gets a route for each.
const maxNetworks = 64

// prefixes reads networks. An address stands for itself alone.
func prefixes(key string, texts []string, errs *cniplugin.Problems) (networks []netip.Prefix) {
	if len(texts) > maxNetworks {
		errs.Refuse(key, fmt.Sprintf("%d networks", len(texts)), fmt.Sprintf("must have at most %d", maxNetworks))
		return nil
	}
	for i, text := range texts {
		p, err := netip.ParsePrefix(text)
		if addr, addrErr := netip.ParseAddr(text); addrErr == nil && addr.Zone() == "" {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		wrong := ""
		switch {
		case err != nil || p.Addr().Is4In6():
			wrong = "must be a network such as 10.96.0.0/12, or an address"
		case p.Masked() != p:
			wrong = fmt.Sprintf("has bits beyond the prefix length: write %s", p.Masked())
		case p.Addr().IsLoopback() || p.Addr().IsMulticast() || p.Addr().Is6() && p.Addr().IsLinkLocalUnicast():
			wrong = "must not be a loopback, multicast or IPv6 link-local address: the node cannot be reached there"
		case p.Bits() == 0:
			wrong = "must not be everything: the pod's own network would be of no use"
		case slices.Contains(networks, p):
			wrong = "is in the list twice: keep one"
		}
		if wrong == "" {
			networks = append(networks, p)
		} else {
			errs.Refuse(fmt.Sprintf("%s[%d]", key, i), text, wrong)
		}
	}
	return networks
}

// HostAccess reads relink-host-access' configuration, and returns everything that is wrong.
func HostAccess(b []byte, _ cniplugin.Args) (Request, []error) {
	var c struct {
		chained
		AccessConfig
	}
	errs := HostAccessKeys.Decode("", b, &c)
	request := c.request(&errs)
	options, wrong := c.options(func(key string) string { return key })
	request.HostAccess = options
	return request, append(errs, wrong...)
}

// FlagOptions returns what the flags ask for, and everything that is wrong.
func (h AccessConfig) FlagOptions() (*hostaccess.Options, []error) {
	if h.Mark != "" {
		h.Mark = MarkText(strconv.Quote(string(h.Mark)))
	}
	return h.options(flagName)
}

// flagName returns the flag of a key.
func flagName(key string) string {
	if flag, differs := map[string]string{"ifName": "if-name", "preserveSource": "preserve-source"}[key]; differs {
		key = flag
	}
	return "--" + key
}
