package validate

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint/parents"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// judgeNode says what the node lacks for the chains. An ADD would fail for each of these things.
func (c *collected) judgeNode(node Node) {
	for _, network := range c.chains {
		for _, p := range network.plugins {
			c.reader(network).checkNode(p, node)
		}
	}
	for _, subject := range node.Unknown {
		c.addFinding(Network{File: "this node"}, Warning, "not looked at: "+subject)
	}
}

func (r *chainReader) checkNode(p plugin, node Node) {
	for _, n := range p.needs {
		switch problem := node.Problems[n]; {
		case problem == "":
		case n.key == moduleNeed:
			r.addFinding(Error, p.place, "the kernel has no module %s: %s", n.value, problem)
		case n.key == apiNeed:
			r.addFinding(Warning, p.place, "%s: no pod starts on this network before relink-agent can ask the Kubernetes API: %s", n.value, problem)
		default:
			r.addErrors(p.place, cniplugin.ConfigError(n.key, n.value, problem))
		}
		for _, other := range node.OlderLeases[n] {
			r.addFinding(Warning, p.place, "%s", lease.ElsewhereRemark(r.name, other))
		}
	}
	r.checkNodeAccess(p, node)
	if node.Devices != nil && p.request != nil {
		if err := parents.CheckHost(node.Devices, node.Route, *p.request); err != nil {
			r.addErrors(p.place, err)
		}
	}
}

func suggestion(kind string) string {
	if near := cniplugin.Nearest(kind, ipam.Plugins...); near != "" && near != kind {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// judgeRanges says which networks of different names give the same addresses. Each network has its own leases, and
// does not know the leases of the other.
func (c *collected) judgeRanges() {
	type addressPlugin struct {
		chain chain
		plugin
	}
	var earlier []addressPlugin
	for _, network := range c.chains {
		for _, p := range network.plugins {
			if len(p.sets) == 0 {
				continue
			}
			for _, before := range earlier {
				if before.leases == p.leases && (before.chain.name == network.name || p.leases != need{}) {
					continue // They share their leases.
				}
				if shared, ok := sharedRange(p, before.plugin); ok {
					c.reader(network).addFinding(Warning, p.place, "addresses of %s are given by the network %q (%s) too: on one VLAN two pods would get the same address: split the range, or give both networks one \"ipam.store\"",
						shared, before.chain.name, before.chain.File)
					break
				}
			}
			earlier = append(earlier, addressPlugin{network, p})
		}
	}
}

// sharedRange returns the first range of p that overlaps a range of the earlier plugin.
func sharedRange(p, earlier plugin) (shared lease.Range, ok bool) {
	for _, r := range slices.Concat(p.sets...) {
		if slices.ContainsFunc(earlier.sets, lease.RangeSet{r}.Overlaps) {
			return r, true
		}
	}
	return shared, false
}
