package validate

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/printable"
)

// names are the names of relink's plugins that stand in a list.
var names = []string{netconf.MacvlanName, netconf.VLANName, netconf.CheckpointName}

// chain is a network taken apart.
type chain struct {
	Network
	name    string
	plugins []plugin
}

// plugin is one of the chain.
type plugin struct {
	place string
	kind  string
	// ipam is the IPAM plugin's name, empty for none.
	ipam string
	// request is what the configuration asks of one of relink's interface plugins. It is nil for any other plugin, and
	// for a configuration with an error.
	request *netconf.Request
	// store is the directory of the checkpoints. It is empty for a plugin without checkpoints, and for a wrong directory.
	store string
	// sets are the ranges of relink-ipam or host-local.
	sets []lease.RangeSet
}

// listKeys are the keys of a list of plugins (libcni.NetworkConfFromBytes).
var listKeys = cniplugin.Keys{
	Of: "a list of plugins",
	Known: []cniplugin.Key{
		{Name: "cniVersion"}, {Name: "cniVersions"}, {Name: "name"}, {Name: "plugins"}, {Name: "disableCheck"}, {Name: "disableGC"}, {Name: "loadOnlyInlinedPlugins"},
	},
}

// reading takes one network apart.
type reading struct {
	chain
	findings []Finding
}

func (r *reading) say(severity Severity, place, format string, args ...any) {
	if r.Place != "" && place != "" {
		place = r.Place + ", " + place
	} else {
		place = r.Place + place
	}
	r.findings = append(r.findings, Finding{File: r.File, Place: place, Severity: severity, Message: printable.Line(fmt.Sprintf(format, args...))})
}

// strange says which keys are strange. A key that is allowed gets a warning, as perhaps nobody reads it.
func (r *reading) strange(place string, k *cniplugin.Keys, at string, b []byte, errorsToo bool) {
	strange, err := k.Examine(at, b)
	if err != nil {
		return // Text that is no JSON was reported before.
	}
	for _, s := range strange {
		switch {
		case s.Err != nil && errorsToo:
			r.say(Error, place, "%s", message(s.Err))
		case s.Err == nil && !strings.ContainsAny(s.Key[strings.LastIndexByte(s.Key, '.')+1:], "/#_") && !strings.Contains(s.Key, "/"):
			r.say(Warning, place, "unknown configuration key %q: %s does not read it: remove it if nobody else does", s.Key, k.Of)
		}
	}
}

// readChain reads a network and all plugins of it.
func readChain(n Network) (chain, []Finding) {
	r := reading{chain: chain{Network: n}}
	var head struct {
		Name       string            `json:"name"`
		CNIVersion string            `json:"cniVersion"`
		Plugins    []json.RawMessage `json:"plugins"`
		Type       string            `json:"type"`
	}
	for _, err := range cniplugin.DecodeAll("", n.Config, &head) {
		r.say(Error, "", "%s", message(err))
	}
	if head.Name == "" {
		head.Name = n.Name
	}
	r.name = head.Name
	if head.Name == "" {
		r.say(Error, "", "%s", message(cniplugin.ConfigError("name", cniplugin.Missing, "must be the network's name")))
	} else if err := attachment.ValidateName(head.Name); err != nil {
		r.say(Error, "", "%s", message(cniplugin.ConfigError("name", head.Name, err.Error())))
	}
	if v := head.CNIVersion; v != "" && !slices.Contains(version.All.SupportedVersions(), v) {
		r.say(Error, "", "invalid \"cniVersion\": %q: must be one of %s", v, strings.Join(version.All.SupportedVersions(), ", "))
	}
	r.form(head.Type != "", head.Plugins)
	if head.Type != "" && head.Plugins == nil {
		r.plugin("", n.Config)
		r.order()
		return r.chain, r.findings
	}
	r.strange("", &listKeys, "", n.Config, true)
	for i, written := range head.Plugins {
		config, err := withHead(written, head.Name, head.CNIVersion)
		if err != nil {
			r.say(Error, "", "%s", message(cniplugin.ConfigError(fmt.Sprintf("plugins[%d]", i), cniplugin.Written(written), "must be an object: put its keys in { }")))
			continue
		}
		r.plugin(fmt.Sprintf("plugins[%d]", i), config)
	}
	r.order()
	return r.chain, r.findings
}

// form reports a file whose name does not fit what is in it: libcni goes by the name.
func (r *reading) form(single bool, plugins []json.RawMessage) {
	extension := filepath.Ext(r.File)
	isFile := r.Name == "" && slices.Contains(runtimeExtensions, extension)
	switch {
	case single && plugins != nil:
		r.say(Error, "", `has "type" and "plugins": keep "plugins", with one object for each plugin`)
	case single && isFile && extension == ".conflist":
		r.say(Error, "", `is one plugin: put it in "plugins": [ ], or name the file *.conf`)
	case !single && plugins != nil && isFile && extension != ".conflist":
		r.say(Error, "", "is a list of plugins: runtimes read that in *.conflist: rename the file")
	case !single && len(plugins) == 0:
		r.say(Error, "", "%s", message(cniplugin.ConfigError("plugins", cniplugin.Missing, `must have the plugins, such as [{"type": "relink-macvlan", "master": "bond4"}]`)))
	}
}

// withHead adds to a plugin's object the keys that libcni adds. The rest of the text stays as it is: a key that is there twice
// has to be found.
func withHead(written json.RawMessage, name, cniVersion string) ([]byte, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(written, &keys); err != nil {
		return nil, err
	}
	var more strings.Builder
	for key, value := range map[string]string{"name": name, "cniVersion": cniVersion} {
		if keys[key] == nil && value != "" {
			quoted, err := json.Marshal(value)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&more, "%q:%s,", key, quoted)
		}
	}
	body := strings.TrimPrefix(strings.TrimSpace(string(written)), "{")
	if len(keys) == 0 {
		return []byte("{" + strings.TrimSuffix(more.String(), ",") + body), nil
	}
	return []byte("{" + more.String() + body), nil
}

// plugin reads the configuration of one plugin.
func (r *reading) plugin(place string, config []byte) {
	var head struct {
		Type string            `json:"type"`
		IPAM cniplugin.Section `json:"ipam"`
	}
	// The plugin's reader reports values of a wrong type.
	_ = cniplugin.DecodeLoosely("", config, &head)
	if head.Type == "" {
		r.say(Error, place, "%s", message(cniplugin.ConfigError("type", cniplugin.Missing, "must be the plugin's name, such as relink-macvlan")))
		return
	}
	p := plugin{place: strings.TrimSpace(place + " " + head.Type), kind: head.Type, ipam: head.IPAM.Type}
	place = p.place
	switch reader := netconf.Interface[head.Type]; {
	case reader != nil:
		r.ownInterface(&p, config, reader)
	case head.Type == netconf.CheckpointName:
		c, errs := netconf.Checkpoint(config)
		r.errors(place, errs)
		r.strange(place, &netconf.CheckpointKeys, "", config, false)
		r.store(&p, c)
	case head.Type == ipam.PluginName:
		r.say(Error, place, `invalid "type": %q: must be an interface plugin such as relink-macvlan; write relink-ipam in "ipam"`, head.Type)
	default:
		r.foreign(&p, config)
	}
	r.plugins = append(r.plugins, p)
}

// errors says what the plugin would say, once for each key: a value of a wrong type would be reported as missing, too. The
// network's name was judged with the list.
func (r *reading) errors(place string, errs []error) {
	said := map[string]bool{"name": true}
	for _, err := range errs {
		text := message(err)
		if key, _, ok := strings.Cut(strings.TrimPrefix(text, `invalid "`), `": `); ok {
			if said[key] {
				continue
			}
			said[key] = true
		}
		r.say(Error, place, "%s", text)
	}
}

// interfaceKeys are the keys of the plugins that make interfaces.
var interfaceKeys = map[string]*cniplugin.Keys{netconf.MacvlanName: &netconf.MacvlanKeys, netconf.VLANName: &netconf.VLANKeys}

func (r *reading) ownInterface(p *plugin, config []byte, reader netconf.Reader) {
	request, errs := reader(config, cniplugin.Args{})
	r.errors(p.place, errs)
	r.strange(p.place, interfaceKeys[p.kind], "", config, false)
	if len(errs) == 0 {
		p.request = &request
	}
	r.store(p, request.Config)
	r.section(p, request.Network)
}

// store reports a directory of checkpoints that no plugin takes.
func (r *reading) store(p *plugin, c cniplugin.Config) {
	store, err := netconf.OpenStore(c)
	if err != nil {
		r.say(Error, p.place, "%s", message(err))
		return
	}
	p.store = store.Dir()
}

// section reads what the plugin has for its IPAM plugin.
func (r *reading) section(p *plugin, n cniplugin.Network) {
	switch p.ipam {
	case ipam.PluginName:
		read, errs := ipam.Examine(n)
		r.errors(p.place, errs)
		r.strange(p.place, &ipam.Keys, "ipam", n.IPAM.JSON, false)
		if p.sets = read.Sets; read.Detection && netconf.Interface[p.kind] == nil {
			r.say(Warning, p.place, `"ipam.conflictDetection": %s does not probe for addresses: only relink-macvlan and relink-vlan do`, p.kind)
		}
	case "host-local":
		// It reads the same keys. Errors are left to host-local itself.
		read, _ := ipam.Examine(n)
		p.sets = read.Sets
	}
}

// foreign judges a plugin that is not relink's: a name that looks like one of relink's, and the section for
// relink-ipam.
func (r *reading) foreign(p *plugin, config []byte) {
	if near := cniplugin.Nearest(p.kind, append(slices.Clone(names), ipam.PluginName)...); near != "" {
		r.say(Error, p.place, "invalid \"type\": %q: no such plugin of relink; did you mean %q?", p.kind, near)
		return
	}
	var n cniplugin.Network
	if err := cniplugin.Decode(config, &n); err != nil || p.ipam == "" {
		return // Nothing in it is for relink.
	}
	if p.ipam == ipam.PluginName {
		strange, err := ipam.ExamineNetwork(config)
		for _, s := range strange {
			if s.Err != nil {
				r.say(Error, p.place, "%s", message(s.Err))
			}
		}
		if err != nil {
			r.say(Error, p.place, "%s", message(err))
		}
	} else if near := cniplugin.Nearest(p.ipam, ipam.PluginName); near != "" {
		r.say(Error, p.place, "invalid \"ipam.type\": %q: no such plugin of relink; did you mean %q?", p.ipam, near)
	}
	r.section(p, n)
}

// order says what is wrong with the order of the plugins.
func (r *reading) order() {
	made := ""
	for i, p := range r.plugins {
		last := i == len(r.plugins)-1
		switch {
		case netconf.Interface[p.kind] != nil && made != "":
			r.say(Error, p.place, "invalid \"type\": %q: %s makes the pod's interface already: a list has one interface plugin", p.kind, made)
		case netconf.Interface[p.kind] != nil:
			if made = p.kind; !last && r.plugins[len(r.plugins)-1].kind != netconf.CheckpointName {
				r.say(Warning, p.place, "%s comes later: what it changes is not remembered: put relink-checkpoint last", r.plugins[i+1].kind)
			}
		case p.kind == netconf.CheckpointName && i == 0:
			r.say(Error, p.place, "%s", message(netconf.NoInterface(p.kind)))
		case p.kind == netconf.CheckpointName && !last:
			r.say(Warning, p.place, "%s comes later: what it changes is not remembered: put relink-checkpoint last", r.plugins[i+1].kind)
		}
	}
}
