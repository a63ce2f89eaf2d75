package cniplugin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/printable"
)

// validKey is the key of a GC's list. oldKey is what the specification called it at first. libcni writes both.
const (
	validKey = "cni.dev/valid-attachments"
	oldKey   = "cni.dev/attachments"
)

// ValidAttachments returns the attachments that the configuration of a GC lists as valid. listed says whether
// there is a list: a missing list is not an empty one. null is an empty list: CRI-O sends it for a network
// that no pod is on. An entry that is no attachment is an error with code 7: it may stand for an attachment that
// is valid.
func ValidAttachments(config []byte) (_ map[types.GCAttachment]bool, listed bool, err error) {
	var c struct {
		List json.RawMessage `json:"cni.dev/valid-attachments"`
	}
	if err := Decode(config, &c); err != nil || c.List == nil {
		return nil, false, err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(c.List, &list); err != nil {
		return nil, false, ConfigError(validKey, RawValue(c.List), "must be a list of attachments: everything is kept")
	}
	valid := map[types.GCAttachment]bool{}
	for i, written := range list {
		var a types.GCAttachment
		if err := json.Unmarshal(written, &a); err != nil || a.ContainerID == "" || a.IfName == "" {
			return nil, true, ConfigError(fmt.Sprintf("%s[%d]", validKey, i), RawValue(written), "must have containerID and ifname: everything is kept")
		}
		valid[a] = true
	}
	return valid, true, nil
}

// WithValid returns the configuration of a GC with more attachments in its list of valid ones. It is an
// error if the configuration has no list.
func WithValid(config []byte, added []types.GCAttachment) ([]byte, error) {
	valid, listed, err := ValidAttachments(config)
	if err != nil {
		return nil, err
	}
	if !listed {
		return nil, ConfigError(validKey, Missing, "must list the valid attachments: everything is kept")
	}
	for _, a := range added {
		valid[a] = true
	}
	list := slices.AppendSeq([]types.GCAttachment{}, maps.Keys(valid)) // An empty list is [], not null.
	slices.SortFunc(list, func(a, b types.GCAttachment) int {
		return cmp.Or(strings.Compare(a.ContainerID, b.ContainerID), strings.Compare(a.IfName, b.IfName))
	})
	var keys map[string]json.RawMessage
	if err := Decode(config, &keys); err != nil {
		return nil, err
	}
	written, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	for key := range keys {
		switch {
		case strings.EqualFold(key, oldKey):
			keys[key] = written // A plugin may read only this one.
		case strings.EqualFold(key, validKey):
			delete(keys, key) // Case does not count in keys. A second list would be read instead of this one.
		}
	}
	keys[validKey] = written
	return json.Marshal(keys)
}

// maxNamed is how many attachments KeptByGC names. A runtime logs the line, and a node can have hundreds.
const maxNamed = 3

// KeptByGC says in one line what a GC keeps although the runtime does not list it. Each of kept names one and why it stays. It
// names the first few and counts the others. It is empty for none.
func KeptByGC(kept []string) string {
	if len(kept) == 0 {
		return ""
	}
	return "GC keeps what the runtime does not list, as its network namespace is not proven gone: " + printable.First(kept, maxNamed, "; ")
}
