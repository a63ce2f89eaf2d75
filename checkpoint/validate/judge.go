package validate

import (
	"fmt"
	"strings"

	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/checkpoint/parents"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// judgeNode says what the node lacks for the chains. An ADD would fail for each of these things.
func judgeNode(chains []chain, node Node) []ConfigFinding {
	var findings []ConfigFinding
	for _, c := range chains {
		for _, p := range c.plugins {
			r := chainReader{chain: c}
			r.checkNode(p, node)
			findings = append(findings, r.findings...)
		}
	}
	for _, subject := range node.Unknown {
		findings = append(findings, ConfigFinding{File: "this node", Severity: Warning, Message: "not looked at: " + subject})
	}
	return findings
}

func (r *chainReader) checkNode(p plugin, node Node) {
	dirs := strings.Join(node.PluginDirs, ", ")
	if installed, ok := node.Plugins[p.kind]; ok && !installed {
		r.addFinding(Error, p.place, "invalid \"type\": %q: is not in the runtime's directories (%s): install it there, or name the directory by --cni-bin", p.kind, dirs)
	}
	if installed, ok := node.Plugins[p.ipam]; ok && !installed && (p.ipam != ipam.PluginName || netconf.InterfaceReaders[p.kind] == nil) {
		r.addFinding(Error, p.place, "invalid \"ipam.type\": %q: is not in the runtime's directories (%s)%s", p.ipam, dirs, suggestion(p.ipam))
	}
	for _, module := range p.modules() {
		if available, ok := node.Modules[module]; ok && !available {
			r.addFinding(Error, p.place, "the kernel has no module %s: install the package with the kernel's modules", module)
		}
	}
	if problem := node.Stores[p.store]; problem != "" {
		r.addFinding(Error, p.place, "invalid \"checkpointDir\": %q: no checkpoint can be written there: %s", p.store, problem)
	}
	if problem := node.Leases[p.leases]; problem != "" {
		r.addFinding(Error, p.place, "invalid \"ipam.dataDir\": %q: no lease can be written there: %s", p.leases.dir, problem)
	}
	for _, other := range node.OlderLeases[p.leases] {
		r.addFinding(Warning, p.place, "%s", lease.ElsewhereRemark(r.name, other))
	}
	if problem := node.Files[p.resolvConf]; problem != "" {
		r.addFinding(Error, p.place, "invalid \"ipam.resolvConf\": %q: must be a file that can be read: %s", p.resolvConf, problem)
	}
	if p.needsAPI != "" && node.NoAPI != "" {
		r.addFinding(Warning, p.place, "%s: no pod starts on this network before relink-agent can ask the Kubernetes API: %s", p.needsAPI, node.NoAPI)
	}
	r.checkNodeAccess(p, node)
	if node.Devices != nil && p.request != nil {
		if err := parents.CheckHost(node.Devices, node.Route, *p.request); err != nil {
			r.addFinding(Error, p.place, "%s", errorText(err))
		}
	}
}

func suggestion(kind string) string {
	if near := cniplugin.Nearest(kind, ipam.Plugins...); near != "" && near != kind {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// addressPlugin is a plugin that gives addresses, and its network.
type addressPlugin struct {
	chain chain
	plugin
}

// judgeRanges says which networks of different names give the same addresses. Each network has its own leases, and
// does not know the leases of the other.
func judgeRanges(chains []chain) []ConfigFinding {
	var plugins []addressPlugin
	var findings []ConfigFinding
	for _, c := range chains {
		for _, p := range c.plugins {
			if len(p.sets) == 0 {
				continue
			}
			for _, before := range plugins {
				if before.leases == p.leases && (before.chain.name == c.name || p.leases != leaseStore{}) {
					continue // They share their leases.
				}
				if shared := sharedSpan(before.plugin, p); shared != "" {
					r := chainReader{chain: c}
					r.addFinding(Warning, p.place, "%s are given by the network %q (%s) too: on one VLAN two pods would get the same address: split the range, or give both networks one \"ipam.store\"",
						shared, before.chain.name, before.chain.File)
					findings = append(findings, r.findings...)
					break
				}
			}
			plugins = append(plugins, addressPlugin{c, p})
		}
	}
	return findings
}

// sharedSpan returns the first range of p that overlaps a range of the other plugin, "" for none.
func sharedSpan(earlier, p plugin) string {
	for _, set := range p.sets {
		for _, earlierSet := range earlier.sets {
			for _, r := range set {
				for _, o := range earlierSet {
					if r.Overlaps(o.Span) {
						return "addresses of " + r.String()
					}
				}
			}
		}
	}
	return ""
}
