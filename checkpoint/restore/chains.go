package restore

import (
	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Chain is a set of records whose parents go and come back together: the records on one NIC, or on one bond and its
// members. No chain waits for another.
type Chain struct {
	// Base is the recorded name of the lowest device. It is empty if the records are on a device of the sandbox, and
	// that device has no record.
	Base    string
	Records []checkpoint.Record
}

// Chains is a pure function: it groups the records by what they are on in the host. Records are in one chain if they
// name the same device: by its name, its permanent MAC or its place on the bus. mapped is ParentOptions.Mapped: a
// device and the device that it is mapped to are in one chain too. Chains on bonds come first. Otherwise the order is
// that of the first records.
func Chains(records []checkpoint.Record, mapped map[string]string) (chains []Chain) {
	sets := disjointSets{}
	for oldName, newName := range mapped {
		sets.join("name "+oldName, "name "+newName)
	}
	keys := make([]string, len(records))
	for i := range records {
		recordKeys := chainKeys(&records[i])
		for _, key := range recordKeys[1:] {
			sets.join(recordKeys[0], key)
		}
		keys[i] = recordKeys[0]
	}
	byRoot, onBond := map[string]*Chain{}, map[*Chain]bool{}
	var order []*Chain
	for i, key := range keys {
		root := sets.find(key)
		c := byRoot[root]
		if c == nil {
			c = &Chain{Base: baseOf(&records[i])}
			byRoot[root], order = c, append(order, c)
		}
		c.Records = append(c.Records, records[i])
		if isOnBond(records[i].Interface.Parents) {
			c.Base, onBond[c] = baseOf(&records[i]), true
		}
	}
	for _, c := range bondsFirst(order, func(c *Chain) bool { return onBond[c] }) {
		chains = append(chains, *c)
	}
	return chains
}

// parentChains returns the parents of the records in the host, each chain once: first those on bonds. The plan for the others depends on
// which NICs become members.
func parentChains(records []checkpoint.Record) (chains [][]netstate.Device) {
	listed := map[string]bool{}
	for i := range records {
		parents := checkpoint.HostParents(records[i].Interface)
		if key := planKey(parents); len(parents) > 0 && !listed[key] {
			listed[key] = true
			chains = append(chains, parents)
		}
	}
	return bondsFirst(chains, isOnBond)
}

// bondsFirst returns the list with those on bonds before the others.
func bondsFirst[T any](list []T, onBond func(T) bool) (sorted []T) {
	for _, first := range []bool{true, false} {
		for _, element := range list {
			if onBond(element) == first {
				sorted = append(sorted, element)
			}
		}
	}
	return sorted
}

// chainKeys returns the keys that records of one chain share. There is at least one key.
func chainKeys(r *checkpoint.Record) []string {
	sandbox, parents := "sandbox "+r.Attachment.ContainerID+" ", r.Interface.Parents
	keys := []string{sandbox + r.Interface.Link.Name}
	switch {
	case r.Interface.ParentsInSandbox && len(parents) > 0:
		return append(keys, sandbox+checkpoint.Base(parents).Name)
	case r.Interface.Link.Kind != netstate.KindNIC && len(parents) == 0:
		return keys
	}
	nics := hostNICs(r)
	if len(parents) > 0 {
		base := checkpoint.Base(parents)
		nics = append(nics, netstate.Member{Name: base.Name, NIC: base.NIC})
	}
	for _, m := range nics {
		keys = append(append(keys, "name "+m.Name), hardwareKeys(m.NIC)...)
	}
	return keys
}

// hardwareKeys are the keys by which other records can name the same NIC.
func hardwareKeys(n netstate.NIC) (keys []string) {
	if n.PermanentMAC != "" {
		keys = append(keys, "MAC "+n.PermanentMAC)
	}
	if n.BusAddress != "" {
		keys = append(keys, "place "+n.BusAddress+" "+n.DevPort)
	}
	return keys
}

// baseOf returns the recorded name of the record's lowest device in the host.
func baseOf(r *checkpoint.Record) string {
	if r.Interface.Link.Kind == netstate.KindNIC {
		return nameInHost(r.Interface.Link)
	}
	return checkpoint.Base(checkpoint.HostParents(r.Interface)).Name
}

// isOnBond says that the lowest of the parents is a bond.
func isOnBond(parents []netstate.Device) bool {
	return checkpoint.Base(parents).Bond != nil
}

// disjointSets holds sets of keys (union-find). The value of a key is another key of its set, closer to the set's root.
type disjointSets map[string]string

func (d disjointSets) find(key string) string {
	up, ok := d[key]
	if !ok {
		return key
	}
	d[key] = d.find(up) // This shortens the next search.
	return d[key]
}

func (d disjointSets) join(a, b string) {
	if a, b = d.find(a), d.find(b); a != b {
		d[b] = a
	}
}
