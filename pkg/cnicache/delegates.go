package cnicache

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
)

// delegate has the fields that are read of Multus's DelegateNetConf (pkg/types/types.go in multus-cni).
type delegate struct {
	Conf          struct{ Name string }
	ConfList      struct{ Name string }
	IfnameRequest string `json:"ifnameRequest"`
	Bytes         []byte
}

// delegates are the delegates of one sandbox, in Multus's order.
type delegates struct {
	containerID string
	list        []delegate
}

// delegates reads the files in dir. The name of each is a container ID.
func (r *reader) delegates(dir string) (lists []delegates) {
	parse := func(name string, b []byte) (any, error) {
		if err := attachment.ValidateName(name); err != nil {
			return nil, fmt.Errorf("its name is not a container ID: it %w", err)
		}
		d := delegates{containerID: name}
		err := json.Unmarshal(b, &d.list)
		return d, err
	}
	r.eachFile(dir, parse, func(content any) { lists = append(lists, content.(delegates)) })
	return lists
}

// MultusContainerIDs returns the container IDs for which Multus keeps a list of delegates below dir. Read leaves out
// those that no runtime's cache has, because nothing tells their namespace. Read reports the lists that cannot
// be read.
func MultusContainerIDs(dir string) (containerIDs []string, err error) {
	r := reader{files: map[string]cachedFile{}}
	for _, d := range r.delegates(filepath.Join(dir, "multus")) {
		containerIDs = append(containerIDs, d.containerID)
	}
	return containerIDs, r.err
}

// entriesWithoutResult returns the delegates that have no result of their own. What Multus's list lacks comes from the runtime's
// entry of the same sandbox.
func entriesWithoutResult(lists []delegates, runtime, results []Entry) []Entry {
	var entries []Entry
	for _, ds := range lists {
		i := slices.IndexFunc(runtime, func(e Entry) bool { return e.Attachment.ContainerID == ds.containerID })
		if i < 0 {
			continue // Nothing tells the sandbox's namespace.
		}
		for n, d := range ds.list {
			e := Entry{Attachment: d.key(n, runtime[i].Attachment), Pod: runtime[i].Pod, Netns: runtime[i].Netns, Delegate: true}
			hasResult := slices.ContainsFunc(results, func(r Entry) bool {
				return r.Attachment.ContainerID == ds.containerID && r.Attachment.IfName == e.Attachment.IfName
			})
			if hasResult || e.Attachment.Validate() != nil {
				continue
			}
			e.Config = pluginConfig(d.Bytes)
			entries = append(entries, e)
		}
	}
	return entries
}

// key returns the attachment of the n-th delegate. Multus (getIfname in pkg/multus/multus.go) gives the first
// delegate the interface name that Multus itself was called with. The others get net<n> unless they ask for a
// name.
func (d delegate) key(n int, runtime attachment.Key) attachment.Key {
	key := attachment.Key{Network: d.ConfList.Name, ContainerID: runtime.ContainerID, IfName: d.IfnameRequest}
	if key.Network == "" {
		key.Network = d.Conf.Name
	}
	if key.IfName == "" {
		key.IfName = fmt.Sprintf("net%d", n)
		if n == 0 {
			key.IfName = runtime.IfName
		}
	}
	return key
}
