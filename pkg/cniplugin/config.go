package cniplugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Header is what every plugin reads of a network configuration for every command.
type Header struct {
	CNIVersion string      `json:"cniVersion"`
	Name       string      `json:"name"`
	IPAM       IPAMSection `json:"ipam"`
	// PrevResult is "prevResult" as it is written, nil for none. Previous reads it.
	PrevResult Result `json:"prevResult"`
}

// Network is what every plugin reads of a network configuration. It is decoded once: an interface plugin
// hands it to the IPAM plugin that runs in its process.
type Network struct {
	Header
	RuntimeConfig RuntimeConfig `json:"runtimeConfig"`
	// Args is "args" as it is written. Each plugin reads what it knows of it.
	Args json.RawMessage `json:"args"`
	// AllowPersistentIPs says that a virtual machine's IPAMClaim has its addresses. KubeVirt's controller looks for this
	// key beside "type", so it is no key of "ipam".
	AllowPersistentIPs bool `json:"allowPersistentIPs"`
}

// Result is the result that another plugin has printed, as it is written.
type Result json.RawMessage

// UnmarshalJSON keeps the text. null is nothing.
func (r *Result) UnmarshalJSON(b []byte) error {
	*r = nil
	if string(b) != "null" {
		*r = slices.Clone(b)
	}
	return nil
}

// Previous returns PrevResult in the form of the newest version, nil if there is none.
func (h Header) Previous() (*current.Result, error) {
	if h.PrevResult == nil {
		return nil, nil
	}
	// A result without a version has that of the configuration.
	config := types.NetConf{CNIVersion: h.CNIVersion}
	var result *current.Result
	err := json.Unmarshal(h.PrevResult, &config.RawPrevResult)
	if err == nil {
		err = version.ParsePrevResult(&config)
	}
	if err == nil {
		result, err = current.NewResultFromResult(config.PrevResult)
	}
	if err != nil {
		return nil, ConfigError("prevResult", RawValue(h.PrevResult), "must be the result of an ADD")
	}
	return result, nil
}

// IPAMSection is "ipam": what a configuration has for its IPAM plugin.
type IPAMSection struct {
	// Type is the plugin's name, empty for none.
	Type string
	// JSON is the section as it is written, nil for none.
	JSON json.RawMessage
}

// UnmarshalJSON reads the type, and leaves the rest to the plugin of that name.
func (s *IPAMSection) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var keys struct {
		Type string `json:"type"`
	}
	// Keys.Examine reports a key in another case. A DEL takes it.
	if err := DecodePart("ipam", b, &keys); err != nil {
		return err
	}
	s.Type, s.JSON = keys.Type, slices.Clone(b)
	return nil
}

// RuntimeConfig is "runtimeConfig": what a runtime asks for, where the configuration has the capability.
type RuntimeConfig struct {
	MAC string `json:"mac"`
	// IPs and IPRanges are as they are written. The IPAM plugin reads them.
	IPs      json.RawMessage `json:"ips"`
	IPRanges json.RawMessage `json:"ipRanges"`
}

// Config are the keys that relink's interface plugins share. ConfigKeys has their names.
type Config struct {
	Network
	// DNS goes into the result as it is.
	DNS types.DNS `json:"dns"`
	// Master names the device to build on. Of a list, the first device that exists counts.
	Master Names `json:"master"`
	// MTU is in bytes. 0 stands for the master's.
	MTU int `json:"mtu"`
	// LinkInContainer says that the master is in the sandbox, not on the host.
	LinkInContainer bool `json:"linkInContainer"`
	// StatusCarrier makes STATUS fail while the master is down or has no carrier.
	StatusCarrier bool `json:"statusCarrier"`
	// CheckpointDir is where checkpoints are kept (see checkpoint.OpenStore).
	CheckpointDir string `json:"checkpointDir"`
}

// Names is a name or a list of names in JSON.
type Names []string

// UnmarshalJSON takes a string or a list of strings.
func (n *Names) UnmarshalJSON(b []byte) error {
	var name string
	if err := json.Unmarshal(b, &name); err == nil {
		*n = nil
		if name != "" {
			*n = Names{name}
		}
		return nil
	}
	var list []string
	if err := json.Unmarshal(b, &list); err != nil || list == nil {
		return ConfigError("master", RawValue(b), "must be a device's name or a list of them")
	}
	*n = list
	if len(list) == 0 {
		return ConfigError("master", RawValue(b), "must name at least one device; leave it out for the default route's device")
	}
	return nil
}

// Problems returns an error with code 7 for each shared key whose value works on no host. CheckpointDir is
// left out: whoever opens the store checks it.
func (c Config) Problems() []error {
	var errs Problems
	if err := attachment.ValidateName(c.Name); err != nil && c.Name != "" {
		errs.Refuse("name", c.Name, err.Error())
	}
	for i, name := range c.Master {
		switch {
		case name == "":
			errs.Refuse("master", name, "must be a device's name")
		case slices.Contains(c.Master[:i], name):
			errs.Refuse("master", name, "is in the list twice: keep one")
		}
	}
	if c.MTU != 0 && c.MTU < netstate.MinMTU {
		errs.Refuse("mtu", c.MTU, fmt.Sprintf("must be 0 (the master's MTU) or at least %d", netstate.MinMTU))
	}
	if c.IPAM.Type == "" && c.IPAM.hasOtherKeys() {
		errs.Refuse("ipam.type", Missing, `must name the IPAM plugin, such as relink-ipam or host-local; leave "ipam" out for no addresses`)
	}
	return errs
}

// hasOtherKeys says whether the section has more keys than the type and comments.
func (s IPAMSection) hasOtherKeys() bool {
	var keys map[string]json.RawMessage
	if json.Unmarshal(s.JSON, &keys) != nil {
		return false
	}
	for key := range keys {
		if key != "type" && !isForeign(key) {
			return true
		}
	}
	return false
}

// FirstError returns the first of the errors, nil for none.
func FirstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// DelConfig is what a DEL, a GC and a CHECK read of a configuration. It is no more than they need: a pod can be detached
// also if an ADD would refuse the configuration by now. An attachment is as its ADD has made it: a runtime may rebuild a pod whose
// CHECK fails, so a mistake that came into the configuration later must not fail it.
type DelConfig struct {
	Header
	CheckpointDir json.RawMessage `json:"checkpointDir"`
}

// ReadDelConfig reads the configuration in b for a DEL, a GC or a CHECK, as DecodePart does. It fails with code 7 if the
// name or the IPAM section is of a wrong type, and with code 6 if b is no JSON.
func ReadDelConfig(b []byte) (DelConfig, error) {
	var d DelConfig
	err := Decode(b, &d)
	return d, err
}

// Network returns what was read of what every plugin has.
func (d DelConfig) Network() Network {
	return Network{Header: d.Header}
}

// Config returns what was read as the configuration of an interface plugin. A checkpointDir that is no string is an
// error with code 7, and the configuration beside the error does not have it.
func (d DelConfig) Config() (Config, error) {
	config := Config{Network: d.Network()}
	if d.CheckpointDir == nil {
		return config, nil
	}
	return config, DecodePart("checkpointDir", d.CheckpointDir, &config.CheckpointDir)
}

// Args are the parts of CNI_ARGS that relink looks at.
type Args struct {
	Pod attachment.Pod
	MAC string
	// IP is the address to ask the IPAM plugin for, as host-local reads it. Multus writes a list of addresses with
	// commas between them.
	IP string
}

// ParseArgs reads CNI_ARGS. It passes over keys that it does not know: they are for other plugins. A part
// that is no pair is an error with code 4.
func ParseArgs(s string) (Args, error) {
	var a Args
	if s == "" {
		return a, nil
	}
	for pair := range strings.SplitSeq(s, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return a, EnvError("CNI_ARGS", pair, "must be of the form KEY=VALUE, with ; between the pairs")
		}
		switch key {
		case "MAC":
			a.MAC = value
		case "IP":
			a.IP = value
		default:
			a.Pod.SetArg(key, value)
		}
	}
	return a, nil
}

// mustBeMAC says what netstate.ParseMAC takes.
const mustBeMAC = "must be the MAC address of one device: 6 bytes such as 02:00:00:00:00:01, neither zero nor multicast"

// ParseMAC returns the value of a configuration's key, a MAC address, in its canonical form. It is empty for
// none.
func ParseMAC(key, mac string) (string, error) {
	return parseMAC(mac, ConfigError(key, mac, mustBeMAC))
}

// parseMAC returns the MAC in its canonical form, or that error.
func parseMAC(mac string, wrong error) (string, error) {
	if mac == "" {
		return "", nil
	}
	canonical, err := netstate.ParseMAC(mac)
	if err != nil {
		return "", wrong
	}
	return canonical, nil
}

// ParsedMAC returns MAC in its canonical form. It is empty for none.
func (a Args) ParsedMAC() (string, error) {
	return parseMAC(a.MAC, EnvError("CNI_ARGS", "MAC="+a.MAC, mustBeMAC))
}

// ParseVLANProtocol returns the value of "vlanProtocol" in its canonical form. Without a value it is
// 802.1q.
func ParseVLANProtocol(s string) (string, error) {
	switch strings.ToLower(s) {
	case "", netstate.Protocol8021Q:
		return netstate.Protocol8021Q, nil
	case netstate.Protocol8021AD:
		return netstate.Protocol8021AD, nil
	}
	return "", ConfigError("vlanProtocol", s, "must be "+netstate.Protocol8021Q+" or "+netstate.Protocol8021AD)
}
