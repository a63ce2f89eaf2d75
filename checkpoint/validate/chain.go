package validate

import (
	"cmp"
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
)

// ownPlugins are those of relink's plugins that a list can have.
var ownPlugins = map[string]struct {
	read netconf.Reader
	keys *cniplugin.Keys
	// chained says that it comes after an interface plugin.
	chained bool
}{
	netconf.MacvlanName:    {read: netconf.Macvlan, keys: &netconf.MacvlanKeys},
	netconf.VLANName:       {read: netconf.VLAN, keys: &netconf.VLANKeys},
	netconf.CheckpointName: {netconf.Checkpoint, &netconf.CheckpointKeys, true},
	netconf.HostAccessName: {netconf.HostAccess, &netconf.HostAccessKeys, true},
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
	// needs are what it needs of the node. leases is the one of them that has the leases of relink-ipam, if it names a directory.
	needs  []need
	leases need
	// sets are the ranges of relink-ipam or host-local.
	sets []lease.RangeSet
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

// chainReader takes one network apart, or judges it.
type chainReader struct {
	chain
	// out gets the findings.
	out     *collected
	version string
	// reported are the keys of the present plugin that have an error in the report. headReported are those of the list.
	reported, headReported map[string]bool
}

// reader returns a reader of the chain, whose findings are c's.
func (c *collected) reader(network chain) *chainReader {
	return &chainReader{chain: network, out: c, reported: map[string]bool{}}
}

func (r *chainReader) addFinding(severity Severity, place, format string, args ...any) {
	r.out.addFinding(Network{File: r.File, Place: joinPlace(r.Place, place)}, severity, fmt.Sprintf(format, args...))
}

// checkKeys returns the errors of strange keys: the plugin's reader has them among its own. A key that is allowed gets a warning, because
// perhaps nobody reads it.
func (r *chainReader) checkKeys(place string, k *cniplugin.Keys, path string, b []byte) (errs []error) {
	unknown, _ := k.Examine(path, b) // Text that is no JSON was reported before.
	for _, s := range unknown {
		if s.Err != nil {
			errs = append(errs, s.Err)
		} else if !strings.ContainsAny(s.Key[strings.LastIndexByte(s.Key, '.')+1:], "/#_") && !strings.Contains(s.Key, "/") {
			r.addFinding(Warning, place, "unknown configuration key %q: %s does not read it: remove it if nobody else does", s.Key, k.Program)
		}
	}
	return errs
}

// readChain reads a network and all its plugins. The networks that its plugins delegate to come after it.
func (c *collected) readChain(n Network) {
	r := c.reader(chain{Network: n})
	config, err := rewritten(n.Config, nil)
	if err != nil {
		r.addErrors("", err)
		return
	}
	r.checkEncoding(n.Config)
	index := len(c.chains)
	c.chains = append(c.chains, r.chain)
	keys := decode[map[string]json.RawMessage](config)
	if kind := decode[string](keys["type"]); kind != "" && keys["plugins"] == nil {
		r.readSingle(n.Config)
	} else {
		r.readList(config, keys["plugins"] != nil, kind != "")
	}
	r.checkOrder()
	c.chains[index] = r.chain
}

// readSingle reads a configuration of one plugin, as it is in the file.
func (r *chainReader) readSingle(written []byte) {
	if r.isFile() && filepath.Ext(r.File) == ".conflist" {
		r.addFinding(Error, "", `is one plugin: put it in "plugins": [ ], or name the file *.conf`)
	}
	var h head
	// The runtime reads them from the file, before it writes the configuration anew.
	errs := cniplugin.DecodeAll("", written, &h)
	r.checkHead(h, errs)
	r.readPlugin("", written)
}

// readList reads a list of plugins.
func (r *chainReader) readList(config []byte, hasPlugins, hasType bool) {
	switch {
	case hasType:
		r.addFinding(Error, "", `has "type" and "plugins": keep "plugins", with one object for each plugin`)
	case hasPlugins && r.isFile() && filepath.Ext(r.File) != ".conflist":
		r.addFinding(Error, "", "is a list of plugins: runtimes read that in *.conflist: rename the file")
	}
	h, wrong, refused := readHead(config)
	before := len(r.out.findings)
	r.checkHead(h, wrong)
	if len(h.Plugins) == 0 {
		r.addErrors("", errNoPlugins)
	}
	r.addRefusal("", before, refused)
	for _, err := range r.checkKeys("", &listKeys, "", config) {
		severity := Warning
		if strings.HasSuffix(errorText(err), noPluginRemedy) {
			severity = Error
		}
		r.addFinding(severity, "", "%s", errorText(err))
	}
	for i, written := range h.Plugins {
		r.readPlugin(fmt.Sprintf("plugins[%d]", i), written)
	}
}

// checkHead reports what is wrong with the name and the version, and the other errors. A network without a name has the
// name of its definition.
func (r *chainReader) checkHead(h head, errs []error) {
	r.name, r.version = cmp.Or(h.Name, r.Name), h.CNIVersion
	r.reported = map[string]bool{"name": r.name != h.Name} // The definition's is there.
	r.addErrors("", errs...)
	switch err := attachment.ValidateName(r.name); {
	case r.name == "":
		r.addErrors("", cniplugin.ConfigError("name", cniplugin.Missing, "must be the network's name"))
	case err != nil:
		r.addErrors("", cniplugin.ConfigError("name", r.name, err.Error()))
	default:
		delete(r.reported, "name")
	}
	if err := cniplugin.CheckVersion(r.version, version.All.SupportedVersions()); err != nil {
		r.addErrors("", err)
	}
	r.headReported = maps.Clone(r.reported)
}

// isFile says whether the configuration is a file by itself that runtimes read: libcni goes by its name.
func (r *chainReader) isFile() bool {
	return r.Place == "" && slices.Contains(runtimeExtensions, filepath.Ext(r.File))
}

// readPlugin reads the configuration of one plugin, as the plugin gets it. libcni refuses it as it is written.
func (r *chainReader) readPlugin(place string, written []byte) {
	config, err := rewritten(written, map[string]any{"name": r.name, "cniVersion": r.version})
	if err != nil {
		r.addErrors("", cniplugin.ConfigError(place, cniplugin.RawValue(written), "must be an object: put its keys in { }"))
		return
	}
	var head struct {
		Type string                `json:"type"`
		IPAM cniplugin.IPAMSection `json:"ipam"`
	}
	// The plugin's reader reports values of a wrong type.
	_ = cniplugin.DecodeAll("", config, &head)
	_, refused := libcni.NetworkPluginConfFromBytes(written)
	before := len(r.out.findings)
	r.reported = maps.Clone(r.headReported)
	if head.Type == "" {
		r.addRefusal(place, before, refused)
		return
	}
	p := plugin{place: strings.TrimSpace(place + " " + head.Type), kind: head.Type, ipam: head.IPAM.Type}
	place = p.place
	switch relink, ok := ownPlugins[head.Type]; {
	case ok:
		r.readOwn(&p, config, relink.read, relink.keys)
	case head.Type == ipam.PluginName:
		r.addFinding(Error, place, `invalid "type": %q: must be an interface plugin such as relink-macvlan; write relink-ipam in "ipam"`, head.Type)
	default:
		r.checkForeign(&p, config)
	}
	p.addNeeds()
	r.addRefusal(place, before, refused)
	r.plugins = append(r.plugins, p)
}

// addErrors reports what the plugin would say, once for each key: a value of a wrong type would be reported as missing,
// too. Errors of the network's name and version are not repeated for each plugin.
func (r *chainReader) addErrors(place string, errs ...error) {
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

// readOwn reads the configuration of one of relink's plugins.
func (r *chainReader) readOwn(p *plugin, config []byte, read netconf.Reader, keys *cniplugin.Keys) {
	request, errs := read(config, cniplugin.Args{})
	chained := ownPlugins[p.kind].chained
	if err := cniplugin.CheckVersion(r.version, netconf.CheckpointVersions.SupportedVersions()); chained && err != nil {
		errs = append(errs, err)
	}
	r.addErrors(p.place, errs...)
	r.checkKeys(p.place, keys, "", config)
	r.checkStore(p, request.Config)
	if chained {
		p.access = request.HostAccess
		return
	}
	if len(errs) == 0 {
		p.request, p.access = &request, request.HostAccess
	}
	r.readIPAM(p, request.Network)
}

// checkStore reports a directory of checkpoints that every plugin refuses.
func (r *chainReader) checkStore(p *plugin, c cniplugin.Config) {
	store, err := netconf.OpenStore(c)
	if err != nil {
		r.addErrors(p.place, err)
		return
	}
	p.needs = append(p.needs, need{key: checkpointsKey, value: store.Dir()})
}

// checkLeases reports a directory of leases that relink-ipam does not take. A directory or a name of the configuration was
// reported before.
func (r *chainReader) checkLeases(p *plugin, read ipam.ConfigSummary) {
	dir, err := lease.Dir(read.DataDir)
	if err != nil {
		r.addErrors(p.place, err)
		return
	}
	if _, err := lease.Open(dir, read.Store); err == nil && filepath.IsAbs(dir) {
		p.leases = need{leasesKey, dir, read.Store}
		p.needs = append(p.needs, p.leases)
	}
}

// readIPAM reads what the plugin has for its IPAM plugin.
func (r *chainReader) readIPAM(p *plugin, n cniplugin.Network) {
	switch p.ipam {
	case ipam.PluginName:
		read, errs := ipam.Examine(n)
		r.addErrors(p.place, errs...)
		r.checkKeys(p.place, &ipam.Keys, "ipam", n.IPAM.JSON)
		r.checkLeases(p, read)
		if filepath.IsAbs(read.ResolvConf) { // Examine reports a relative path: it names no file of the node.
			p.needs = append(p.needs, need{key: fileKey, value: read.ResolvConf})
		}
		if read.NeedsAPI != "" {
			p.needs = append(p.needs, need{key: apiNeed, value: read.NeedsAPI})
		}
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
	if near := cniplugin.Nearest(p.kind, append(slices.Sorted(maps.Keys(ownPlugins)), ipam.PluginName)...); near != "" {
		r.addFinding(Error, p.place, "invalid \"type\": %q: no such plugin of relink; did you mean %q?", p.kind, near)
		return
	}
	r.readDelegates(p.place, config)
	if p.ipam == "" {
		return // Nothing in it is for relink.
	}
	var n cniplugin.Network
	errs := ipam.NetworkKeys.Decode("", config, &n)
	if p.ipam == ipam.PluginName {
		r.addErrors(p.place, errs...)
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
		if keys := decode[map[string]json.RawMessage](written); keys["type"] == nil && keys["plugins"] == nil {
			continue
		}
		location := joinPlace(r.Place, fmt.Sprintf("%s, delegates[%d]", place, i))
		r.out.readChain(Network{File: r.File, Place: location, Config: written, Name: r.name})
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
			if interfacePlugin = p.kind; !last && !ownPlugins[r.plugins[len(r.plugins)-1].kind].chained {
				r.addFinding(Warning, p.place, "%s comes later: what it changes is not remembered: put relink-checkpoint last", r.plugins[i+1].kind)
			}
		case ownPlugins[p.kind].chained && i == 0:
			r.addFinding(Error, p.place, "%s", errorText(netconf.NoInterface(p.kind)))
		case p.kind == netconf.CheckpointName && !last:
			r.addFinding(Warning, p.place, "%s comes later: what it changes is not remembered: put relink-checkpoint last", r.plugins[i+1].kind)
		}
	}
}
