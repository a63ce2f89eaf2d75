package restore

import (
	"slices"

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
func Chains(records []checkpoint.Record, mapped map[string]string) []Chain {
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
	var chains []Chain
	place := map[string]int{}
	for i, key := range keys {
		root := sets.find(key)
		index, ok := place[root]
		if !ok {
			index = len(chains)
			place[root] = index
			chains = append(chains, Chain{Base: baseOf(&records[i])})
		}
		chains[index].Records = append(chains[index].Records, records[i])
		if onBond(&records[i]) {
			chains[index].Base = baseOf(&records[i])
		}
	}
	slices.SortStableFunc(chains, func(a, b Chain) int {
		return trueFirst(slices.ContainsFunc(a.Records, isOnBond), slices.ContainsFunc(b.Records, isOnBond))
	})
	return chains
}

// chainKeys returns the keys that records of one chain share. There is at least one key.
func chainKeys(r *checkpoint.Record) []string {
	sandbox, parents := "sandbox "+r.Attachment.ContainerID+" ", r.Interface.Parents
	keys := []string{sandbox + r.Interface.Link.Name}
	switch {
	case r.Interface.ParentsInSandbox && len(parents) > 0:
		return append(keys, sandbox+parents[len(parents)-1].Name)
	case r.Interface.Link.Kind != netstate.KindNIC && len(parents) == 0:
		return keys
	}
	nics := hostNICs(r)
	if len(parents) > 0 {
		base := parents[len(parents)-1]
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
	switch parents := r.Interface.Parents; {
	case r.Interface.Link.Kind == netstate.KindNIC:
		return nameInHost(r.Interface.Link)
	case r.Interface.ParentsInSandbox, len(parents) == 0:
		return ""
	default:
		return parents[len(parents)-1].Name
	}
}

func onBond(r *checkpoint.Record) bool {
	parents := r.Interface.Parents
	return len(parents) > 0 && parents[len(parents)-1].Bond != nil
}

func isOnBond(r checkpoint.Record) bool { return onBond(&r) }

// trueFirst compares two values: true comes first.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// disjointSets holds sets of keys (union-find). The value of a key is another key of its set, closer to the set's root.
type disjointSets map[string]string

func (d disjointSets) find(key string) string {
	for {
		up, ok := d[key]
		if !ok || up == key {
			return key
		}
		if next, ok := d[up]; ok {
			d[key] = next // This shortens the next search.
		}
		key = up
	}
}

func (d disjointSets) join(a, b string) {
	if a, b = d.find(a), d.find(b); a != b {
		d[b] = a
	}
}
