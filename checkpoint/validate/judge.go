package validate

import (
	"fmt"
	"strings"

	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/checkpoint/attach/parents"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam"
)

// judgeNode says what the node lacks for the chains. An ADD would fail for each of these things.
func judgeNode(chains []chain, node Node) []Finding {
	var findings []Finding
	for _, c := range chains {
		for _, p := range c.plugins {
			r := reading{chain: c}
			r.lacks(p, node)
			findings = append(findings, r.findings...)
		}
	}
	for _, what := range node.Unknown {
		findings = append(findings, Finding{File: "this node", Severity: Warning, Message: "not looked at: " + what})
	}
	return findings
}

func (r *reading) lacks(p plugin, node Node) {
	dirs := strings.Join(node.PluginDirs, ", ")
	if there, known := node.Plugins[p.kind]; known && !there {
		r.say(Error, p.place, "invalid \"type\": %q: is not in the runtime's directories (%s): install it there, or name the directory by --cni-bin", p.kind, dirs)
	}
	if there, known := node.Plugins[p.ipam]; known && !there && (p.ipam != ipam.PluginName || netconf.Interface[p.kind] == nil) {
		r.say(Error, p.place, "invalid \"ipam.type\": %q: is not in the runtime's directories (%s)%s", p.ipam, dirs, didYouMean(p.ipam))
	}
	for _, module := range p.modules() {
		if there, known := node.Modules[module]; known && !there {
			r.say(Error, p.place, "the kernel has no module %s: install the package with the kernel's modules", module)
		}
	}
	if why := node.Stores[p.store]; why != "" {
		r.say(Error, p.place, "invalid \"checkpointDir\": %q: no checkpoint can be written there: %s", p.store, why)
	}
	if why := node.Leases[p.leases]; why != "" {
		r.say(Error, p.place, "invalid \"ipam.dataDir\": %q: no lease can be written there: %s", p.leases.dir, why)
	}
	if why := node.Files[p.resolvConf]; why != "" {
		r.say(Error, p.place, "invalid \"ipam.resolvConf\": %q: must be a file that can be read: %s", p.resolvConf, why)
	}
	if p.needsAPI != "" && node.NoAPI != "" {
		r.say(Warning, p.place, "%s: no pod starts on this network before relink-agent can ask the Kubernetes API: %s", p.needsAPI, node.NoAPI)
	}
	r.lacksForAccess(p, node)
	if node.Devices != nil && p.request != nil {
		if err := parents.CheckHost(node.Devices, node.Route, *p.request); err != nil {
			r.say(Error, p.place, "%s", message(err))
		}
	}
}

func didYouMean(kind string) string {
	if near := cniplugin.Nearest(kind, ipam.Plugins...); near != "" && near != kind {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// giver is a plugin that gives addresses, and its network.
type giver struct {
	chain chain
	plugin
}

// judgeRanges says which networks of different names give the same addresses. Each network has its own leases, and
// does not know the leases of the other.
func judgeRanges(chains []chain) []Finding {
	var all []giver
	var findings []Finding
	for _, c := range chains {
		for _, p := range c.plugins {
			if len(p.sets) == 0 {
				continue
			}
			for _, before := range all {
				if before.chain.name == c.name {
					continue // They share their leases.
				}
				if shared := sharedSpan(before.plugin, p); shared != "" {
					r := reading{chain: c}
					r.say(Warning, p.place, "%s are given by the network %q (%s) too: on one VLAN two pods would get the same address: split the range, or give both networks one name",
						shared, before.chain.name, before.chain.File)
					findings = append(findings, r.findings...)
					break
				}
			}
			all = append(all, giver{c, p})
		}
	}
	return findings
}

// sharedSpan returns the first range of p that overlaps a range of the other plugin, "" for none.
func sharedSpan(other, p plugin) string {
	for _, set := range p.sets {
		for _, otherSet := range other.sets {
			for _, r := range set {
				for _, o := range otherSet {
					if r.Overlaps(o.Span) {
						return "addresses of " + r.String()
					}
				}
			}
		}
	}
	return ""
}
