package cniplugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Network is what every plugin reads of a network configuration, each part decoded once: the
// IPAM plugin that runs in the process of an interface plugin has it from there.
type Network struct {
	CNIVersion    string        `json:"cniVersion"`
	Name          string        `json:"name"`
	IPAM          Section       `json:"ipam"`
	RuntimeConfig RuntimeConfig `json:"runtimeConfig"`
	// Args are for the plugin that knows them.
	Args json.RawMessage `json:"args"`
	// PrevResult is as it was written, nil for none; Previous reads it.
	PrevResult Result `json:"prevResult"`
}

// Result is what a plugin has printed, as it was written.
type Result json.RawMessage

// UnmarshalJSON takes null for nothing.
func (r *Result) UnmarshalJSON(b []byte) error {
	*r = nil
	if string(b) != "null" {
		*r = slices.Clone(b)
	}
	return nil
}

// Previous returns PrevResult, nil for none.
func (n Network) Previous() (types.Result, error) {
	if n.PrevResult == nil {
		return nil, nil
	}
	// The configuration's version counts for a result that has none.
	config := types.NetConf{CNIVersion: n.CNIVersion}
	if err := json.Unmarshal(n.PrevResult, &config.RawPrevResult); err != nil {
		return nil, err
	}
	err := version.ParsePrevResult(&config)
	return config.PrevResult, err
}

// Section is what a configuration has for its IPAM plugin.
type Section struct {
	// Type is the plugin's name, empty for none.
	Type string
	// JSON is the section as it is written, nil for none.
	JSON json.RawMessage
}

// UnmarshalJSON reads the type, and leaves the rest to the plugin of that name.
func (s *Section) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var keys struct {
		Type string `json:"type"`
	}
	if err := DecodePart("ipam", b, &keys); err != nil {
		return err
	}
	s.Type, s.JSON = keys.Type, slices.Clone(b)
	return nil
}

// RuntimeConfig is what a runtime asks for by the capabilities of a configuration.
type RuntimeConfig struct {
	MAC string `json:"mac"`
	// IPs and IPRanges are for the IPAM plugin.
	IPs      json.RawMessage `json:"ips"`
	IPRanges json.RawMessage `json:"ipRanges"`
}

// Config are the keys that relink's interface plugins share. Keys that are not
// known are ignored, as other CNI plugins do.
type Config struct {
	Network
	// DNS is passed on.
	DNS types.DNS `json:"dns"`
	// Master names the device to build on; of a list, the first that exists.
	Master Names `json:"master"`
	// MTU in bytes; 0 is the master's.
	MTU int `json:"mtu"`
	// LinkInContainer says that the master is in the sandbox.
	LinkInContainer bool `json:"linkInContainer"`
	// StatusCarrier has STATUS fail while the master is down or has no carrier.
	StatusCarrier bool `json:"statusCarrier"`
	// CheckpointDir is where checkpoints are kept (see checkpoint.OpenStore).
	CheckpointDir string `json:"checkpointDir"`
}

// Names is a name or a list of names in JSON.
type Names []string

// UnmarshalJSON takes a string or a list of strings.
func (n *Names) UnmarshalJSON(b []byte) error {
	var one string
	if err := json.Unmarshal(b, &one); err == nil {
		*n = nil
		if one != "" {
			*n = Names{one}
		}
		return nil
	}
	var list []string
	if err := json.Unmarshal(b, &list); err != nil || list == nil {
		return ConfigError("master", string(b), "must be a device's name or a list of them")
	}
	*n = list
	if len(list) == 0 {
		return ConfigError("master", "[]", "must name at least one device, or be left out for the default route's")
	}
	return nil
}

// Decode reads the configuration in b into config, a pointer to a struct. Its
// error names the key whose value is of a wrong type.
func Decode(b []byte, config any) error { return DecodePart("", b, config) }

// DecodePart is Decode for what the configuration has at the key, "" for all of it.
func DecodePart(key string, b []byte, part any) error {
	err := json.Unmarshal(b, part)
	var coded *types.Error
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &coded):
		return coded
	case errors.As(err, &wrongType):
		at := keyOf(wrongType.Field, reflect.TypeOf(part))
		if key != "" && at != "" {
			at = key + "." + at
		}
		if at = cmp.Or(at, key); at != "" {
			return ConfigError(at, wrongType.Value, "must be "+jsonType(wrongType.Type))
		}
		return Error(types.ErrDecodingFailure, "network configuration: must be an object")
	}
	return Error(types.ErrDecodingFailure, "network configuration: %v", err)
}

// keyOf returns the key as it is written in the configuration of that type: the names
// of embedded structs are no part of it.
func keyOf(field string, config reflect.Type) string {
	embedded := map[string]bool{}
	embeddedIn(config, embedded, map[reflect.Type]bool{})
	parts := strings.Split(field, ".")
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return embedded[p] }), ".")
}

// embeddedIn collects the names of the structs that t embeds, however deep.
func embeddedIn(t reflect.Type, names map[string]bool, seen map[reflect.Type]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return
	}
	seen[t] = true
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Tag.Get("json") == "" {
			names[f.Name] = true
		}
		embeddedIn(f.Type, names, seen)
	}
}

// jsonType says what is expected in words of JSON.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Pointer:
		return jsonType(t.Elem())
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		return "a whole number that is not negative"
	}
	return "an object"
}

// Validate reports the first of the shared keys whose value no host could
// satisfy. What CheckpointDir must be is for who opens the store to say.
func (c Config) Validate() error {
	for _, name := range c.Master {
		if name == "" {
			return ConfigError("master", "", "must be a device's name")
		}
	}
	if c.MTU != 0 && c.MTU < netstate.MinMTU {
		return ConfigError("mtu", c.MTU, fmt.Sprintf("must be 0 (the master's MTU) or at least %d", netstate.MinMTU))
	}
	return nil
}

// ValidAttachments returns those that the configuration of a GC lists, and whether there
// is a list: a missing one is not an empty one. null is an empty one: CRI-O sends it for a
// network that no pod is on. What is no attachment is an error, as who made the list may have
// meant one by it.
func ValidAttachments(config []byte) (_ map[types.GCAttachment]bool, listed bool, err error) {
	const key = "cni.dev/valid-attachments"
	var c struct {
		List json.RawMessage `json:"cni.dev/valid-attachments"`
	}
	if err := Decode(config, &c); err != nil || c.List == nil {
		return nil, false, err
	}
	var list []types.GCAttachment
	if err := json.Unmarshal(c.List, &list); err != nil {
		return nil, false, ConfigError(key, string(c.List), "must be a list of attachments: everything is kept")
	}
	valid := map[types.GCAttachment]bool{}
	for i, a := range list {
		if a.ContainerID == "" || a.IfName == "" {
			return nil, true, ConfigError(fmt.Sprintf("%s[%d]", key, i), fmt.Sprintf("%+v", a), "must have containerID and ifname: everything is kept")
		}
		valid[a] = true
	}
	return valid, true, nil
}

// Args are the parts of CNI_ARGS that relink looks at.
type Args struct {
	Pod attachment.Pod
	MAC string
	// IP is the address to ask the IPAM plugin for, as host-local reads it, or a list of
	// addresses with commas between them, as Multus gives it.
	IP string
}

// ParseArgs reads CNI_ARGS. Other keys in it are for others: an IPAM plugin, a
// runtime.
func ParseArgs(s string) (Args, error) {
	var a Args
	if s == "" {
		return a, nil
	}
	for pair := range strings.SplitSeq(s, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return a, EnvError("CNI_ARGS", s, fmt.Sprintf("%q is not of the form KEY=VALUE", pair))
		}
		switch key {
		case "K8S_POD_NAMESPACE":
			a.Pod.Namespace = value
		case "K8S_POD_NAME":
			a.Pod.Name = value
		case "K8S_POD_UID":
			a.Pod.UID = value
		case "MAC":
			a.MAC = value
		case "IP":
			a.IP = value
		}
	}
	return a, nil
}

// ParseMAC returns the MAC that the configuration's key gives in its canonical
// form, empty for none.
func ParseMAC(key, mac string) (string, error) {
	if mac == "" {
		return "", nil
	}
	canonical, err := netstate.ParseMAC(mac)
	if err != nil {
		return "", ConfigError(key, mac, err.Error())
	}
	return canonical, nil
}

// ParseVLANProtocol returns the protocol that "vlanProtocol" gives in its
// canonical form, 802.1q for none.
func ParseVLANProtocol(s string) (string, error) {
	switch strings.ToLower(s) {
	case "", netstate.Protocol8021Q:
		return netstate.Protocol8021Q, nil
	case netstate.Protocol8021AD:
		return netstate.Protocol8021AD, nil
	}
	return "", ConfigError("vlanProtocol", s, "must be "+netstate.Protocol8021Q+" or "+netstate.Protocol8021AD)
}
