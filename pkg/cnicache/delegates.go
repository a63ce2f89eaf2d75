package cnicache

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
)

// delegate is what is looked at of Multus's DelegateNetConf (pkg/types/types.go in
// multus-cni).
type delegate struct {
	Conf          struct{ Name string }
	ConfList      struct{ Name string }
	IfnameRequest string `json:"ifnameRequest"`
	Bytes         []byte
}

// delegates are those of one sandbox, in Multus's order.
type delegates struct {
	containerID string
	list        []delegate
}

// readDelegates reads the files of dir, each by the whole of its name that of a
// sandbox.
func readDelegates(dir string) ([]delegates, []error, error) {
	var all []delegates
	unreadable, err := eachFile(dir, func(name string, b []byte) error {
		if err := attachment.ValidateName(name); err != nil {
			return fmt.Errorf("its name is no container ID: it %w", err)
		}
		d := delegates{containerID: name}
		if err := json.Unmarshal(b, &d.list); err != nil {
			return err
		}
		all = append(all, d)
		return nil
	})
	return all, unreadable, err
}

// Delegating names the sandboxes of which Multus keeps a list of delegates, below dir. Read leaves
// out those that no runtime's cache has, as nothing tells where they are. Lists that can't be read
// are Read's to report.
func Delegating(dir string) (containerIDs []string, err error) {
	all, _, err := readDelegates(filepath.Join(dir, "multus"))
	for _, d := range all {
		containerIDs = append(containerIDs, d.containerID)
	}
	return containerIDs, err
}

// newOf returns the delegates that have no result of their own, each with what the
// runtime's entry says of the same sandbox: Multus has none of that in its list.
func newOf(all []delegates, runtime, results []Entry) []Entry {
	var entries []Entry
	for _, ds := range all {
		i := slices.IndexFunc(runtime, func(e Entry) bool { return e.Attachment.ContainerID == ds.containerID })
		if i < 0 {
			continue // Nothing tells where the sandbox is.
		}
		for n, d := range ds.list {
			e := Entry{Attachment: d.key(n, runtime[i].Attachment), Pod: runtime[i].Pod, Netns: runtime[i].Netns, Delegate: true}
			known := slices.ContainsFunc(results, func(r Entry) bool {
				return r.Attachment.ContainerID == ds.containerID && r.Attachment.IfName == e.Attachment.IfName
			})
			if known || e.Attachment.Validate() != nil {
				continue
			}
			if json.Valid(d.Bytes) {
				e.Config = d.Bytes
			}
			entries = append(entries, e)
		}
	}
	return entries
}

// key returns the attachment of the n-th delegate. Multus (getIfname in
// pkg/multus/multus.go) gives its first one the name that it was asked for itself,
// and the others net<n>, where they ask for none.
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
