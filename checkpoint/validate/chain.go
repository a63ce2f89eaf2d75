package validate

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/printable"
)

// pluginNames are the names of those of relink's plugins that a list can have.
var pluginNames = []string{netconf.MacvlanName, netconf.VLANName, netconf.CheckpointName, netconf.HostAccessName}

// chained are the plugins that come after an interface plugin.
var chained = map[string]struct {
	read netconf.Reader
	keys *cniplugin.Keys
}{
	netconf.CheckpointName: {netconf.Checkpoint, &netconf.CheckpointKeys},
	netconf.HostAccessName: {netconf.HostAccess, &netconf.HostAccessKeys},
}

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
	// leases are where relink-ipam keeps its leases. It is empty for another IPAM plugin, and for a wrong directory.
	leases leaseStore
	// sets are the ranges of relink-ipam or host-local.
	sets []lease.RangeSet
	// resolvConf is the absolute path of the file whose settings of DNS relink-ipam returns, empty for none.
	resolvConf string
	// needsAPI is the key for which an ADD asks the Kubernetes API, empty for none.
	needsAPI string
	// access is what relink-host-access or "hostAccess" asks for, nil for nothing.
	access *hostaccess.Options
}

// listKeys are the keys of a list of plugins (libcni.NetworkConfFromBytes). libcni passes the others to no plugin: a pod whose VLAN is
// written there would start without one.
var listKeys = cniplugin.Keys{
	Program:  "a list of plugins",
	Accepted: cniplugin.KeyNames("cniVersion", "cniVersions", "name", "plugins", "disableCheck", "disableGC", "loadOnlyInlinedPlugins"),
	Elsewhere: cniplugin.Hints(noPluginRemedy, "vlan", "vlans", "vlanid", "vlantag", "vlanprotocol", "vlanname", "master", "mtu", "mac", "mode", "ipam", "dns", "hostaccess",
		"checkpointdir", "linkincontainer", "statuscarrier", "allowpersistentips", "capabilities", "pool", "ranges", "subnet", "sticky"),
}

// noPluginRemedy is an error for validate alone: the plugins that lack the key do not know of it.
const noPluginRemedy = `no plugin gets it: write it in the plugin's object in "plugins"`

// chainReader takes one network apart.
type chainReader struct {
	chain
	findings []ConfigFinding
	version  string
	// delegates are the networks in the plugins' configurations.
	delegates []chain
	// reported are the keys of the present plugin that have an error in the report. headReported are those of the list.
	reported, headReported map[string]bool
}

func (r *chainReader) addFinding(severity Severity, place, format string, args ...any) {
	r.findings = append(r.findings, ConfigFinding{File: r.File, Place: joinPlace(r.Place, place), Severity: severity, Message: printable.Line(fmt.Sprintf(format, args...))})
}

// notReported is the severity of a finding that is not reported.
const notReported Severity = ""

// checkKeys reports strange keys. A key that is allowed gets a warning, because perhaps nobody reads it. The others have the
// given severity. With none they are not reported: the plugin's reader has them among its errors.
func (r *chainReader) checkKeys(place string, k *cniplugin.Keys, path string, b []byte, severity Severity) {
	unknown, err := k.Examine(path, b)
	if err != nil {
		return // Text that is no JSON was reported before.
	}
	for _, s := range unknown {
		switch {
		case s.Err != nil && severity != notReported:
			r.addFinding(severity, place, "%s", errorText(s.Err))
		case s.Err == nil && !strings.ContainsAny(s.Key[strings.LastIndexByte(s.Key, '.')+1:], "/#_") && !strings.Contains(s.Key, "/"):
			r.addFinding(Warning, place, "unknown configuration key %q: %s does not read it: remove it if nobody else does", s.Key, k.Program)
		}
	}
}

// readChain reads a network and all its plugins. The first chain is the network's own. Its plugins delegate to the
// others.
func readChain(n Network) ([]chain, []ConfigFinding) {
	r := chainReader{chain: chain{Network: n}}
	config, err := normalized(n.Config)
	if err != nil {
		r.addFinding(Error, "", "%s", errorText(err))
		return nil, r.findings
	}
	r.checkEncoding(n.Config)
	var keys map[string]json.RawMessage
	_ = json.Unmarshal(config, &keys) // It was decoded before.
	if kind, _ := decode[string](keys["type"]); kind != "" && keys["plugins"] == nil {
		r.readSingle(n.Config)
	} else {
		r.readList(config, keys, kind != "")
	}
	r.checkOrder()
	return append([]chain{r.chain}, r.delegates...), r.findings
}

// readSingle reads a configuration of one plugin, as it is in the file.
func (r *chainReader) readSingle(written []byte) {
	if r.isFile() && filepath.Ext(r.File) == ".conflist" {
		r.addFinding(Error, "", `is one plugin: put it in "plugins": [ ], or name the file *.conf`)
	}
	var h head
	// The runtime reads them from the file, before it writes the configuration anew.
	errs := cniplugin.DecodeAll("", written, &h)
	r.checkHead(h.Name, h.CNIVersion, errs)
	config, err := withHead(written, r.name, h.CNIVersion)
	if err != nil {
		r.addFinding(Error, "", "%s", errorText(err))
		return
	}
	r.readPlugin("", config, written)
}

// readList reads a list of plugins.
func (r *chainReader) readList(config []byte, keys map[string]json.RawMessage, hasType bool) {
	switch {
	case hasType:
		r.addFinding(Error, "", `has "type" and "plugins": keep "plugins", with one object for each plugin`)
	case keys["plugins"] != nil && r.isFile() && filepath.Ext(r.File) != ".conflist":
		r.addFinding(Error, "", "is a list of plugins: runtimes read that in *.conflist: rename the file")
	}
	h, wrong, refused := readHead(config, keys)
	before := len(r.findings)
	r.checkHead(h.Name, h.CNIVersion, wrong)
	if len(h.Plugins) == 0 {
		r.addErrors("", []error{errNoPlugins})
	}
	r.addRefusal("", before, refused)
	before = len(r.findings)
	r.checkKeys("", &listKeys, "", config, Warning)
	for i, f := range r.findings[before:] {
		if strings.HasSuffix(f.Message, noPluginRemedy) {
			r.findings[before+i].Severity = Error
		}
	}
	for i, written := range h.Plugins {
		place := fmt.Sprintf("plugins[%d]", i)
		config, err := withHead(written, r.name, h.CNIVersion)
		if err != nil {
			r.addFinding(Error, "", "%s", errorText(cniplugin.ConfigError(place, cniplugin.RawValue(written), "must be an object: put its keys in { }")))
			continue
		}
		r.readPlugin(place, config, written)
	}
}

// checkHead reports what is wrong with the name and the version, and the other errors. A network without a name has the
// name of its definition.
func (r *chainReader) checkHead(name, cniVersion string, errs []error) {
	r.reported = map[string]bool{}
	if r.name = name; name == "" {
		r.name = r.Name
	}
	r.version = cniVersion
	if r.Name != "" && name == "" {
		r.reported["name"] = true // It is there.
	}
	r.addErrors("", errs)
	if r.name == "" {
		errs = []error{cniplugin.ConfigError("name", cniplugin.Missing, "must be the network's name")}
		r.addErrors("", errs)
	} else if err := attachment.ValidateName(r.name); err != nil {
		r.addErrors("", []error{cniplugin.ConfigError("name", r.name, err.Error())})
	} else {
		delete(r.reported, "name")
	}
	if err := cniplugin.CheckVersion(cniVersion, version.All.SupportedVersions()); err != nil {
		r.addErrors("", []error{err})
	}
	r.headReported = maps.Clone(r.reported)
}

// isFile says whether the configuration is a file by itself that runtimes read: libcni goes by its name.
func (r *chainReader) isFile() bool {
	return r.Place == "" && slices.Contains(runtimeExtensions, filepath.Ext(r.File))
}

// readPlugin reads the configuration of one plugin, as the plugin gets it. libcni refuses it as it is written.
func (r *chainReader) readPlugin(place string, config, written []byte) {
	var head struct {
		Type string                `json:"type"`
		IPAM cniplugin.IPAMSection `json:"ipam"`
	}
	// The plugin's reader reports values of a wrong type.
	_ = cniplugin.DecodeAll("", config, &head)
	_, refused := libcni.NetworkPluginConfFromBytes(written)
	before := len(r.findings)
	r.reported = maps.Clone(r.headReported)
	if head.Type == "" {
		r.addRefusal(place, before, refused)
		return
	}
	p := plugin{place: strings.TrimSpace(place + " " + head.Type), kind: head.Type, ipam: head.IPAM.Type}
	place = p.place
	switch reader := netconf.InterfaceReaders[head.Type]; {
	case reader != nil:
		r.readInterface(&p, config, reader)
	case chained[head.Type].read != nil:
		c, errs := chained[head.Type].read(config, cniplugin.Args{})
		if err := cniplugin.CheckVersion(r.version, netconf.CheckpointVersions.SupportedVersions()); err != nil {
			errs = append(errs, err)
		}
		r.addErrors(place, errs)
		r.checkKeys(place, chained[head.Type].keys, "", config, notReported)
		p.access = c.HostAccess
		r.checkStore(&p, c.Config)
	case head.Type == ipam.PluginName:
		r.addFinding(Error, place, `invalid "type": %q: must be an interface plugin such as relink-macvlan; write relink-ipam in "ipam"`, head.Type)
	default:
		r.checkForeign(&p, config)
	}
	r.addRefusal(place, before, refused)
	r.plugins = append(r.plugins, p)
}

// addErrors reports what the plugin would say, once for each key: a value of a wrong type would be reported as missing,
// too. Errors of the network's name and version are not repeated for each plugin.
func (r *chainReader) addErrors(place string, errs []error) {
	for _, err := range errs {
		text := errorText(err)
		if key, _, ok := strings.Cut(strings.TrimPrefix(text, `invalid "`), `": `); ok && strings.HasPrefix(text, `invalid "`) {
			if r.reported[key] {
				continue
			}
			r.reported[key] = true
		}
		r.addFinding(Error, place, "%s", text)
	}
}

// interfaceKeys are the keys of the plugins that make interfaces.
var interfaceKeys = map[string]*cniplugin.Keys{netconf.MacvlanName: &netconf.MacvlanKeys, netconf.VLANName: &netconf.VLANKeys}

func (r *chainReader) readInterface(p *plugin, config []byte, reader netconf.Reader) {
	request, errs := reader(config, cniplugin.Args{})
	r.addErrors(p.place, errs)
	r.checkKeys(p.place, interfaceKeys[p.kind], "", config, notReported)
	if len(errs) == 0 {
		p.request, p.access = &request, request.HostAccess
	}
	r.checkStore(p, request.Config)
	r.readIPAM(p, request.Network)
}

// checkStore reports a directory of checkpoints that every plugin refuses.
func (r *chainReader) checkStore(p *plugin, c cniplugin.Config) {
	store, err := netconf.OpenStore(c)
	if err != nil {
		r.addFinding(Error, p.place, "%s", errorText(err))
		return
	}
	p.store = store.Dir()
}

// checkLeases reports a directory of leases that relink-ipam does not take. A directory or a name of the configuration was
// reported before.
func (r *chainReader) checkLeases(p *plugin, read ipam.ConfigSummary) {
	dir, err := lease.Dir(read.DataDir)
	if err != nil {
		r.addFinding(Error, p.place, "%s", errorText(err))
		return
	}
	if _, err := lease.Open(dir, read.Store); err == nil && filepath.IsAbs(dir) {
		p.leases = leaseStore{dir: dir, name: read.Store}
	}
}

// readIPAM reads what the plugin has for its IPAM plugin.
func (r *chainReader) readIPAM(p *plugin, n cniplugin.Network) {
	switch p.ipam {
	case ipam.PluginName:
		read, errs := ipam.Examine(n)
		r.addErrors(p.place, errs)
		r.checkKeys(p.place, &ipam.Keys, "ipam", n.IPAM.JSON, notReported)
		if filepath.IsAbs(read.ResolvConf) { // Examine reports a relative path: it names no file of the node.
			p.resolvConf = read.ResolvConf
		}
		p.needsAPI = read.NeedsAPI
		r.checkLeases(p, read)
		if p.sets = read.Sets; read.Detection && netconf.InterfaceReaders[p.kind] == nil {
			r.addFinding(Warning, p.place, `"ipam.conflictDetection": %s does not probe for addresses: only relink-macvlan and relink-vlan do`, p.kind)
		}
	case "host-local":
		// It reads the same keys. Errors are left to host-local itself.
		read, _ := ipam.Examine(n)
		p.sets = read.Sets
	}
}

// checkForeign judges a plugin that is not relink's: a name that looks like one of relink's, and the section for
// relink-ipam.
func (r *chainReader) checkForeign(p *plugin, config []byte) {
	if near := cniplugin.Nearest(p.kind, append(slices.Clone(pluginNames), ipam.PluginName)...); near != "" {
		r.addFinding(Error, p.place, "invalid \"type\": %q: no such plugin of relink; did you mean %q?", p.kind, near)
		return
	}
	r.readDelegates(p.place, config)
	if p.ipam == "" {
		return // Nothing in it is for relink.
	}
	var n cniplugin.Network
	errs := cniplugin.DecodeAll("", config, &n)
	if p.ipam == ipam.PluginName {
		unknown, err := ipam.ExamineNetwork(config)
		for _, s := range unknown {
			if s.Err != nil {
				r.addFinding(Error, p.place, "%s", errorText(s.Err))
			}
		}
		if err != nil {
			r.addFinding(Error, p.place, "%s", errorText(err))
		}
		r.addErrors(p.place, errs)
	} else if near := cniplugin.Nearest(p.ipam, ipam.PluginName); near != "" {
		r.addFinding(Error, p.place, "invalid \"ipam.type\": %q: no such plugin of relink; did you mean %q?", p.ipam, near)
	}
	r.readIPAM(p, n)
}

// readDelegates reads the networks that Multus has in its own configuration. One without a name gets the name of this
// one.
func (r *chainReader) readDelegates(place string, config []byte) {
	var c struct {
		Delegates []json.RawMessage `json:"delegates"`
	}
	if json.Unmarshal(config, &c) != nil {
		return // It is another plugin's key of that name.
	}
	for i, written := range c.Delegates {
		if keys, _ := decode[map[string]json.RawMessage](written); keys["type"] == nil && keys["plugins"] == nil {
			continue
		}
		location := joinPlace(r.Place, fmt.Sprintf("%s, delegates[%d]", place, i))
		chains, findings := readChain(Network{File: r.File, Place: location, Config: written, Name: r.name})
		r.delegates, r.findings = append(r.delegates, chains...), append(r.findings, findings...)
	}
}

// checkOrder says what is wrong with the order of the plugins.
func (r *chainReader) checkOrder() {
	interfacePlugin := ""
	for i, p := range r.plugins {
		r.checkMasquerade(p)
		r.checkAccessNetworks(p)
		if p.kind == netconf.HostAccessName && slices.ContainsFunc(r.plugins[:i], func(before plugin) bool { return before.access != nil }) {
			r.addFinding(Error, p.place, "invalid \"type\": %q: the list has host access already: keep it once", p.kind)
		}
		last := i == len(r.plugins)-1
		switch {
		case netconf.InterfaceReaders[p.kind] != nil && interfacePlugin != "":
			r.addFinding(Error, p.place, "invalid \"type\": %q: %s makes the pod's interface already: a list has one interface plugin", p.kind, interfacePlugin)
		case netconf.InterfaceReaders[p.kind] != nil:
			if interfacePlugin = p.kind; !last && chained[r.plugins[len(r.plugins)-1].kind].read == nil {
				r.addFinding(Warning, p.place, "%s comes later: what it changes is not remembered: put relink-checkpoint last", r.plugins[i+1].kind)
			}
		case chained[p.kind].read != nil && i == 0:
			r.addFinding(Error, p.place, "%s", errorText(netconf.NoInterface(p.kind)))
		case p.kind == netconf.CheckpointName && !last:
			r.addFinding(Warning, p.place, "%s comes later: what it changes is not remembered: put relink-checkpoint last", r.plugins[i+1].kind)
		}
	}
}
